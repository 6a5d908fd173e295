# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Division of the items of dead ranks among the survivors. Pure.

Note [items of a dead rank]
A dead rank issues its lost items no more, and no rank begins a step with its items.
The survivors divide them:
1. A survivor sees that a rank is gone. It sends its facts to all other survivors: the
   last step with a contribution of the dead rank, and the items of the dead rank that
   the survivor took from that step on.
2. A survivor that has the facts of all survivors knows the rest. From the step after
   the last contribution on, the dead rank computes nothing. So all items of its lists
   are in no sum, except the items that a contributing survivor took. Each survivor
   issues every n-th of them. It begins later steps with every n-th item of the dead
   rank.
All survivors compute this from the same facts, so no item has two ranks.
  If one of the survivors dies before step 2, some survivors may have its facts, and
others may not. A survivor without the facts then gives up the items of the first dead
rank. They are lost, but none counts twice.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["DeadRanks", "Division", "Facts"]

_HEAD = 2  # numbers of `Facts.numbers` before the items
_EACH = 3  # numbers of one item


@dataclass(frozen=True)
class Facts:
    """Facts of one survivor about a dead rank.

    Attributes:
        last: last step with a contribution of the dead rank; -1: none is known.
        taken: items of the dead rank that the survivor took in `last` or later: step,
            label, and True if the contribution of the survivor counted. Without items
            that did not count and that the plan gives to the dead rank after `last`.
    """

    last: int
    taken: tuple[tuple[int, int, bool], ...] = ()

    def numbers(self) -> list[int]:
        """The facts as whole numbers of 64 bits."""
        return [self.last, len(self.taken), *(n for row in self.taken for n in row)]

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> "Facts":
        """The facts of `numbers`, which may have further numbers at its end."""
        last, count = numbers[:_HEAD]
        rows = range(_HEAD, _HEAD + _EACH * count, _EACH)
        taken = [(numbers[i], numbers[i + 1], bool(numbers[i + 2])) for i in rows]
        return cls(last, tuple(taken))


@dataclass(frozen=True, kw_only=True)
class Division:
    """Division of the items of a dead rank.

    Attributes:
        dead: the rank.
        first_step: first step in which it computes nothing for its owners.
        heirs: survivors among which its items are divided, ascending.
        counted: its items that survivors took and that are in a sum.
        failed: its items that survivors took and that are in no sum.
    """

    dead: int
    first_step: int
    heirs: Sequence[int]
    counted: Collection[int]
    failed: Sequence[int]

    def shares(self, labels: Iterable[int]) -> dict[int, list[int]]:
        """The items of each heir."""
        shares: dict[int, list[int]] = {heir: [] for heir in self.heirs}
        for place, label in enumerate(labels):
            shares[self.heirs[place % len(self.heirs)]].append(label)
        return shares


@dataclass(kw_only=True)
class _Open:
    survivors: Collection[int]
    facts: dict[int, Facts] = field(default_factory=dict)

    def division(self, dead: int) -> Division:
        last = max(each.last for each in self.facts.values())
        taken = [row for each in self.facts.values() for row in each.taken]
        counted = {label for _, label, has_counted in taken if has_counted}
        # Before `last` the dead rank has issued them again itself.
        failed = {label for step, label, _ in taken if step >= last} - counted
        return Division(
            dead=dead,
            first_step=last + 1,
            heirs=sorted(self.facts),
            counted=counted,
            failed=sorted(failed),
        )


class DeadRanks:
    """Dead ranks, as one survivor knows them. For one thread.

    Args:
        rank: the survivor.

    Attributes:
        known: all dead ranks that were noticed.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.known: set[int] = set()
        self._open: dict[int, _Open] = {}
        self._divisions: list[Division] = []

    def notice(self, dead: int, survivors: Collection[int], own: Facts) -> None:
        """A rank is dead. `survivors` has this rank too, and `own` are its facts."""
        self.known.add(dead)
        self._open[dead] = _Open(survivors=set(survivors), facts={self._rank: own})

    def awaited(self) -> list[tuple[int, int]]:
        """Pairs of a dead rank and of a survivor whose facts have not arrived."""
        return [
            (dead, survivor)
            for dead, each in self._open.items()
            for survivor in sorted(each.survivors - each.facts.keys())
        ]

    def add(self, dead: int, survivor: int, facts: Facts) -> None:
        """The facts of a survivor have arrived."""
        self._open[dead].facts[survivor] = facts

    def give_up(self, gone: Collection[int]) -> list[tuple[int, int]]:
        """Gives up dead ranks whose items cannot be divided any more.

        Returns:
            Pairs of such a rank, and of a survivor that died before its facts arrived.
        """
        lost = [(dead, s) for dead, s in self.awaited() if s in gone]
        for dead, _ in lost:
            self._open.pop(dead, None)
        return lost

    def decide(self) -> list[Division]:
        """Dead ranks of which all facts have arrived, each once."""
        ready = [d for d, o in self._open.items() if o.survivors == o.facts.keys()]
        found = [self._open.pop(dead).division(dead) for dead in ready]
        self._divisions = sorted(
            [*self._divisions, *found], key=lambda each: (each.first_step, each.dead)
        )
        return found

    def lists(self, step: int, lists: Sequence[list[int]]) -> list[list[int]]:
        """The lists of all ranks, with those of dead ranks divided.

        Args:
            step: number of the step.
            lists: its lists by the plan of all ranks.
        """
        if not self._divisions:
            return [*lists]
        found = [[*each] for each in lists]
        for division in self._divisions:
            if step >= division.first_step:
                _divide(division, found)
        return found

    def missing(
        self,
        division: Division,
        steps: range,
        lists_of: Callable[[int], Sequence[list[int]]],
    ) -> list[int]:
        """Items of a dead rank that this rank issues again.

        Args:
            division: element of `decide`.
            steps: steps from `division.first_step` on that are over.
            lists_of: the lists of a step by the plan.
        """
        found = division.shares(division.failed)[self._rank]
        for step in steps:
            lists = [[*each] for each in lists_of(step)]
            for other in self._divisions:
                if other is not division and step >= other.first_step:
                    _divide(other, lists)
            share = division.shares(lists[division.dead])[self._rank]
            found += [label for label in share if label not in division.counted]
        return found


def _divide(division: Division, lists: list[list[int]]) -> None:
    items, lists[division.dead] = lists[division.dead], []
    for heir, share in division.shares(items).items():
        lists[heir] += share
