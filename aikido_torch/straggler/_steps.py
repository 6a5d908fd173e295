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
        step: its number on all ranks, from 0.
        way: how this rank came through it: "own" by its own backward, "replayed" from
            the committed gradients, "copied" within the state of another rank.
        copied_from: that rank; None with the other ways.
        num_calls: that have ended.
        skipped: rank to reasons, and in how many calls each.
        stand_ins: data shard to backups that stood in for it, and in how many calls.
        deadline_ms: longest that was used.
        cancelled_bytes: of this rank, that were not sent any more.
        contributions: that are in the results of its calls.
        ended_at: when this rank was through it, by `time.monotonic()`.
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
        """One more call of this step has ended, with a result of `num_elements`."""
        self.num_calls += 1
        for rank in outcome.skipped:
            self.skipped.setdefault(rank, Counter())[outcome.reason] += 1
        for data_shard, backup in outcome.stand_ins:
            self.stand_ins.setdefault(data_shard, Counter())[backup] += 1
        self.deadline_ms = max(self.deadline_ms, outcome.deadline_ms)
        self.cancelled_bytes += outcome.cancelled_bytes
        self.contributions.add(outcome, num_elements)

    def is_plain(self) -> bool:
        """Nobody was skipped or stood in for, and this rank was there."""
        return self.way == "own" and not self.skipped and not self.stand_ins


class Steps(list[StepCounters]):
    """The counters of several steps, oldest first.

    Attributes:
        notes: ways in which the loop loses the gain of skipping, each with its remedy.
        waiting: comparison with waiting for all since the start; None: not known.
        place: the rank that the counters are of, and the size of its group; None: not
            known.
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
        """Steps per second, and which part of each rank's contributions is in them.

        None: the times or the results of fewer than two steps are known.
        """
        return progress_of(self, self.place)
