# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which ranks differ from the majority, from the digests that all have sent. Pure."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Ends", "Verdict", "Votes"]


@dataclass(frozen=True)
class Verdict:
    """What the digests of one step say.

    Attributes:
        step: of the digests.
        agreed: ranks with the digest of the majority, ascending.
        differing: ranks with another digest, ascending.
    """

    step: int
    agreed: tuple[int, ...]
    differing: tuple[int, ...]


class Votes:
    """The digests that have come. Each rank has its own, and all decide alike.

    Where no digest has a majority, the one that most ranks have counts; of two that as
    many ranks have, the one of the lowest rank.

    Args:
        own: this rank.
        size: number of ranks.
    """

    def __init__(self, own: int, size: int) -> None:
        self._own, self._size = own, size
        self._by_step: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._decided = -1  # the last step that needs no more votes

    def add(self, rank: int, step: int, digest: str) -> None:
        """Rank `rank` had `digest` before step `step`."""
        if step > self._decided:
            self._by_step[step][rank] = digest

    @property
    def are_open(self) -> bool:
        """Whether there are votes on a step without a verdict."""
        return bool(self._by_step)

    def decide(self) -> list[Verdict]:
        """Verdicts on the steps that need no more votes, each once, by step.

        A step needs this rank's vote, and those of all others, or equal votes of more
        than half of all ranks, or a later vote of this rank: what has not come by then
        comes from a rank that is late, and does not count.
        """
        last = max((s for s, v in self._by_step.items() if self._own in v), default=-1)
        found = []
        for step in sorted(s for s in self._by_step if s <= last):
            votes = self._by_step[step]
            if step < last or self._is_enough(votes):
                found.append(_verdict(step, votes))
                self._decided = step
                del self._by_step[step]
        return [v for v in found if self._own in (*v.agreed, *v.differing)]

    def _is_enough(self, votes: dict[int, str]) -> bool:
        most = max([*votes.values()].count(digest) for digest in votes.values())
        return len(votes) == self._size or 2 * most > self._size


class Ends:
    """The digests after the last step, of which each rank has sent one or several.

    The last one of a rank counts. A rank that does not compare its state has sent none
    and says so: its digest is empty.

    Args:
        own: this rank.
        size: number of ranks.
    """

    def __init__(self, own: int, size: int) -> None:
        self._own, self._size = own, size
        self._ends: dict[int, tuple[int, str]] = {}

    def add(self, rank: int, step: int, digest: str) -> None:
        """Rank `rank` has `digest` after `step` steps."""
        self._ends[rank] = step, digest

    def awaited(self, gone: Collection[int]) -> list[int]:
        """Ranks of which nothing has come, without those that have left."""
        return [r for r in range(self._size) if r not in self._ends and r not in gone]

    def ahead(self) -> tuple[int, list[int]]:
        """The highest number of steps that a rank has told, and the ranks with it."""
        compared = {rank: step for rank, (step, digest) in self._ends.items() if digest}
        most = max(compared.values(), default=-1)
        return most, sorted(rank for rank in compared if compared[rank] == most)

    def verdict(self, gone: Collection[int]) -> Verdict | None:
        """On the ranks with the most steps.

        None: this rank is none of them, or it is not clear yet. That takes equal
        digests of more than half of the ranks that have not left, or all digests.
        """
        most, ranks = self.ahead()
        if self._own not in ranks:
            return None
        verdict = _verdict(most, {rank: self._ends[rank][1] for rank in ranks})
        num_present = self._size - len(set(gone) - set(self._ends))
        is_clear = 2 * len(verdict.agreed) > num_present or not self.awaited(gone)
        return verdict if is_clear else None


def _verdict(step: int, votes: dict[int, str]) -> Verdict:
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for rank in sorted(votes):
        ranks[votes[rank]].append(rank)
    agreed = max(ranks.values(), key=len)  # the first of several that are as long
    differing = [rank for rank in sorted(votes) if rank not in agreed]
    return Verdict(step, tuple(agreed), tuple(differing))
