# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Items of dead ranks in the loop of a survivor; see Note [items of a dead rank]."""

import logging
from collections.abc import Collection, Sequence

from aikido_torch.reassign._dead_ranks import DeadRanks, Division, Facts
from aikido_torch.reassign._log import AssignmentLog
from aikido_torch.reassign._pending import PendingItems
from aikido_torch.reassign._plan import Plan
from aikido_torch.reassign._training import Training

__all__ = ["Survivors"]

# Steps that a survivor looks back for the last contribution of a dead rank.
_MOST_STEPS = 4096

_log = logging.getLogger("aikido")


class Survivors:
    """The items of dead ranks that this rank issues. For the training thread only.

    Args:
        training: the registered model.
        plan: items of all epochs.
        log: items that this rank computed.
        pending: lost items of this rank; takes its share of those of dead ranks.
    """

    def __init__(
        self, training: Training, plan: Plan, log: AssignmentLog, pending: PendingItems
    ) -> None:
        self._training, self._plan = training, plan
        self._log, self._pending = log, pending
        self._rank, self._size = training.place
        self._dead = DeadRanks(self._rank)
        self._absent: set[int] = set()  # not in the last outcome, and not known as dead
        # Of a rank that is gone: the first step to which it has not contributed surely.
        self._silent_from: dict[int, int] = {}
        self._places: dict[int, tuple[int, int]] = {}  # epoch and its step, by step

    def begin_step(self, number: int, epoch: int, step: int) -> list[int]:
        """Own items of a step, with the share of this rank in those of dead ranks.

        Args:
            number: number of the step.
            epoch, step: its epoch, and its place there.
        """
        self._places[number] = (epoch, step)
        self._places.pop(number - _MOST_STEPS, None)
        return self._dead.lists(number, self._lists(number))[self._rank]

    def on_outcome(self, contributors: Collection[int] | None) -> None:
        """The contributors of an earlier step; None: they are not known."""
        if contributors is None or len(contributors) == self._size:
            self._absent = set()
        else:
            self._absent = {*range(self._size)} - {*contributors} - self._dead.known

    def on_top(self, now: int) -> None:
        """Looks for dead ranks, at the top of step `now`. Never waits.

        Requires: the outcomes of earlier steps are known, and their places.
        """
        if self._absent:
            self._look_for_dead(now)
        if not self._dead.awaited():
            return
        for dead, survivor in self._dead.awaited():
            numbers = self._training.told_of(dead, survivor)
            if numbers is not None:
                self._dead.add(dead, survivor, Facts.of_numbers(numbers))
        if self._dead.awaited():
            gone, _ = self._training.gone()
            for dead, survivor in self._dead.give_up(gone):
                _warn_given_up(dead, survivor)
        self._divide(now)

    def _look_for_dead(self, now: int) -> None:
        gone, end = self._training.gone()
        for rank in sorted(self._absent & {*gone}):
            if now >= self._silent_from.setdefault(rank, end):
                facts = self._facts_of(rank, now)
                survivors = {*range(self._size)} - {*gone}
                self._dead.notice(rank, survivors, facts)
                others = survivors - {self._rank}
                self._training.tell_of(rank, sorted(others), facts.numbers())
        self._absent -= self._dead.known
        self._divide(now)

    def _facts_of(self, dead: int, now: int) -> Facts:
        last = now - 1
        while last >= max(0, now - _MOST_STEPS):
            if dead in (self._training.contributors(last) or ()):
                break
            last -= 1
        taken = [
            (step, label, bool(record.has_counted))
            for step, record in self._log.steps.items()
            if step >= last
            for owner, label in record.computed
            if owner == dead
        ]
        needed = [row for row in taken if self._is_needed(row, dead, last)]
        return Facts(last, tuple(needed))

    def _is_needed(self, row: tuple[int, int, bool], dead: int, last: int) -> bool:
        step, label, has_counted = row
        return has_counted or step == last or label not in self._lists(step)[dead]

    def _divide(self, now: int) -> None:
        for division in self._dead.decide():
            steps = range(max(0, division.first_step), now)
            labels = self._dead.missing(division, steps, self._lists)
            self._pending.lose(labels)
            _tell_division(division, self._rank, len(labels))

    def _lists(self, number: int) -> Sequence[list[int]]:
        place = self._places.get(number)
        if place is None:  # long ago, or before this loader
            return [[] for _ in range(self._size)]
        return self._plan.lists_of(*place)


def _warn_given_up(dead: int, survivor: int) -> None:
    _log.warning(
        "StepLoader: rank %d died, and rank %d soon after it, so the ranks could not "
        "agree on the micro-batches of rank %d. They are lost until the ranks "
        "register again.",
        dead,
        survivor,
        dead,
    )


def _tell_division(division: Division, rank: int, num_items: int) -> None:
    _log.info(
        "StepLoader: rank %d died. %d other ranks compute its micro-batches from step "
        "%d on; rank %d issues %d of them again.",
        division.dead,
        len(division.heirs),
        division.first_step,
        rank,
        num_items,
    )
