# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Observations of ranks in a run, and their evaluation. Pure."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.pipeline_cases.plan import Run
from benchmarks.straggler_cases.case import CaseError


@dataclass(frozen=True)
class Steady:
    """The time in which a pipeline was full."""

    begin: float
    end: float
    count: int  # Micro-batches that were finished in this time

    @property
    def period_ms(self) -> float:
        return 1e3 * (self.end - self.begin) / self.count


@dataclass
class Record:
    """One run as observed by all ranks. Times are by the machine's clock."""

    run: Run
    by_rank: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def replicas(self) -> list[int]:
        return list(self.run.schedule["replicas"])

    def steady(self) -> Steady:
        """The time after the micro-batches that filled it, before the draining ones.

        It consists of whole turns of all replicas, so that each replica counts equally.
        """
        done = sorted(
            itertools.chain.from_iterable(
                self.by_rank[rank]["completions"] for rank in range(self.replicas[0])
            )
        )
        in_flight = self.run.in_flight
        turn = math.lcm(*self.replicas)
        first = max(4 * turn, in_flight)
        last = len(done) - in_flight
        count = (last - first) // turn * turn
        if count <= 0:
            raise CaseError(
                f"'{self.run.name}' has {len(done)} micro-batches and {in_flight} in "
                "flight; too few to be full for a while"
            )
        return Steady(done[last - 1 - count], done[last - 1], count)

    def idle_share(self, steady: Steady) -> float:
        """Idle share of the busiest rank in that time."""
        busy = [
            _within(seen["spans"], steady.begin, steady.end)
            for seen in self.by_rank.values()
        ]
        return 1 - max(busy) / (steady.end - steady.begin)

    def steps_s(self) -> list[float]:
        """Seconds of each run of the schedule, on the first rank.

        If links change, only runs after the change.
        """
        seen = self.by_rank[0]
        return [b - a for a, b in itertools.pairwise([seen["begin"], *seen["ends"]])]

    def step_s(self) -> float:
        """Their mean."""
        return statistics.fmean(self.steps_s())

    def facts(self) -> dict[str, Any]:
        return {"name": self.run.name, "by_rank": self.by_rank}


def _within(spans: Sequence[Sequence[float]], begin: float, end: float) -> float:
    """Seconds of the spans within the range."""
    return sum(max(0.0, min(e, end) - max(b, begin)) for b, e in spans)
