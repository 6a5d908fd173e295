# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Counters of training steps on one rank."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from aikido_torch import _C
from aikido_torch.straggler._contributions import Contributions
from aikido_torch.straggler._progress import Progress, progress_of
from aikido_torch.straggler._waiting import Waiting

__all__ = ["StepCounters", "Steps"]


@dataclass
class StepCounters:
    """The calls of one step, added up.

    Attributes:
        step: number of the step, from 0; the same on all ranks.
        way: how this rank did the step: "own" with its own backward, "replayed" by
            applying the results of the other ranks, "copied" by copying the state of
            another rank.
        copied_from: that other rank; None with "own" and "replayed".
        num_calls: number of finished calls.
        skipped: for each skipped rank, reason to number of calls.
        stand_ins: for each data shard, backup that stood in for it to number of calls.
        deadline_ms: longest deadline that was used.
        cancelled_bytes: bytes that this rank no longer had to send.
        contributions: the contributions in the results of the calls.
        ended_at: when this rank had finished the step, by `time.monotonic()`.
    """

    step: int
    way: Literal["own", "replayed", "copied"] = "own"
    copied_from: int | None = None
    num_calls: int = 0
    skipped: dict[int, Counter[str]] = field(default_factory=dict)
    stand_ins: dict[int, Counter[int]] = field(default_factory=dict)
    deadline_ms: float = 0.0
    cancelled_bytes: int = 0
    contributions: Contributions = field(default_factory=Contributions)
    ended_at: float | None = None

    def add(self, outcome: _C.Outcome, num_elements: int = 1) -> None:
        """Adds a finished call of this step; its result has `num_elements` elements."""
        self.num_calls += 1
        for rank in outcome.skipped:
            self.skipped.setdefault(rank, Counter())[outcome.reason] += 1
        for data_shard, backup in outcome.stand_ins:
            self.stand_ins.setdefault(data_shard, Counter())[backup] += 1
        self.deadline_ms = max(self.deadline_ms, outcome.deadline_ms)
        self.cancelled_bytes += outcome.cancelled_bytes
        self.contributions.add(outcome, num_elements)

    def is_plain(self) -> bool:
        """This rank did the step itself, and no rank was skipped or replaced."""
        return self.way == "own" and not self.skipped and not self.stand_ins


class Steps(list[StepCounters]):
    """The counters of several steps, oldest first.

    Attributes:
        notes: sentences about things in the training loop that undo the gain of
            skipping, each with its remedy.
        waiting: comparison with waiting for all ranks, since the start; None if not
            known.
        place: the rank of these counters, and the size of its group; None if not known.
    """

    def __init__(
        self,
        steps: Iterable[StepCounters] = (),
        *,
        notes: Iterable[str] = (),
        place: tuple[int, int] | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        super().__init__(steps)
        self.notes = list(notes)
        self.place = place
        self.waiting = waiting

    def progress(self) -> Progress | None:
        """Steps per second, and the share of each rank's contributions in the results.

        None if the times or the results of fewer than two steps are known.
        """
        return progress_of(self, self.place)
