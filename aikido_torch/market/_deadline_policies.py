# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policies for a job with a deadline: the planner, and the rivals that it is held to.

All of them obey a rule of safety, so none of them misses a deadline. The rivals are
written after their descriptions: "Can't Be Late" (Wu et al., NSDI 2024) for uniform
progress and greedy spot.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._capacity import Situation
from aikido_torch.market._deadline import (
    DeadlineJob,
    DeadlinePlanner,
    JobState,
    Machine,
)
from aikido_torch.market._survival import Prior, Survival

__all__ = ["GreedySpot", "OnDemandOnly", "SurvivalPolicy", "UniformProgress"]


class OnDemandOnly:
    """One on-demand machine from the start to the end."""

    def observe(self, available: Sequence[bool], gap_s: float) -> None:
        """Needs no samples."""

    def choose(self, situation: Situation) -> tuple[Machine, int, str]:
        """On demand."""
        return Machine.ON_DEMAND, situation.region, "on demand only"


class GreedySpot:
    """Spot while there is capacity; on demand when the deadline leaves no other way."""

    def __init__(self, job: DeadlineJob) -> None:
        self._job = job
        self._is_last = False

    def observe(self, available: Sequence[bool], gap_s: float) -> None:
        """Needs no samples of the past."""

    def choose(self, situation: Situation) -> tuple[Machine, int, str]:
        """Spot, else nothing, else on demand until the end."""
        self._is_last = self._is_last or must_run_on_demand(self._job, situation)
        if self._is_last:
            return Machine.ON_DEMAND, situation.region, "safety net"
        region = first_available(situation)
        if region is None:
            return Machine.NONE, situation.region, "no spot capacity"
        return Machine.SPOT, region, "spot capacity"


class UniformProgress:
    """Spot while there is capacity; on demand while the work is behind the line.

    The line leads from no work at the start to all work at the deadline. An on-demand
    machine goes on until the work is two overheads ahead of the line, or until there is
    spot capacity.
    """

    def __init__(self, job: DeadlineJob) -> None:
        self._job = job
        self._is_last = False

    def observe(self, available: Sequence[bool], gap_s: float) -> None:
        """Needs no samples of the past."""

    def choose(self, situation: Situation) -> tuple[Machine, int, str]:
        """Spot, else by the distance to the line."""
        job = self._job
        self._is_last = self._is_last or must_run_on_demand(job, situation)
        if self._is_last:
            return Machine.ON_DEMAND, situation.region, "safety net"
        region = first_available(situation)
        if region is not None:
            return Machine.SPOT, region, "spot capacity"
        now = job.deadline_s - situation.remaining_s
        done = job.work_s - situation.work_left_s
        ahead = 2 * job.overhead_s if situation.machine == Machine.ON_DEMAND else 0.0
        if done < (now + ahead) * job.work_s / job.deadline_s:
            return Machine.ON_DEMAND, situation.region, "behind the line"
        return Machine.NONE, situation.region, "ahead of the line"


class SurvivalPolicy:
    """The planner of `DeadlinePlanner`, which learns the survival model on the way.

    With several regions, the planner sees one market that has capacity if any region
    has. A spot machine starts in the available region that lives longest in
    expectation, and stays there until its loss.
    """

    def __init__(
        self,
        job: DeadlineJob,
        *,
        num_regions: int = 1,
        prior: Prior | None = None,
        relearn_s: float = 43200.0,
        max_steps: int = 300,
    ) -> None:
        """A policy for `job`.

        Args:
            num_regions: number of regions of each sample.
            prior: belief before the first sample.
            relearn_s: seconds between two computations of the expected costs.
            max_steps: of `DeadlinePlanner`.
        """
        self._job = job
        self._regions = [Survival(prior) for _ in range(num_regions)]
        self._union = Survival(prior)
        self._relearn_s, self._max_steps = relearn_s, max_steps
        self._planner: DeadlinePlanner | None = None
        self._learned_at = 0.0

    def observe(self, available: Sequence[bool], gap_s: float) -> None:
        """Adds a sample to the survival models."""
        for model, is_there in zip(self._regions, available, strict=True):
            model.observe(bool(is_there), gap_s)
        self._union.observe(bool(np.any(available)), gap_s)

    def choose(self, situation: Situation) -> tuple[Machine, int, str]:
        """The choice with the least expected cost that is safe."""
        job = self._job
        now = job.deadline_s - situation.remaining_s
        if self._planner is None:
            self._planner = DeadlinePlanner(
                job,
                self._union.hazards(),
                moves_per_s=self._moves_per_s(),
                max_steps=self._max_steps,
            )
        elif now - self._learned_at >= self._relearn_s:
            self._planner.learn(
                self._union.hazards(),
                situation.remaining_s,
                moves_per_s=self._moves_per_s(),
            )
            self._learned_at = now
        choice = self._planner.decide(
            JobState(
                remaining_s=situation.remaining_s,
                work_left_s=situation.work_left_s,
                machine=situation.machine,
                overhead_left_s=situation.overhead_left_s,
                is_available=any(situation.available),
                age_s=self._union.age_s,
                gap_s=situation.gap_s,
            )
        )
        region = situation.region
        if choice.machine == Machine.SPOT and situation.machine != Machine.SPOT:
            region = self._longest(situation.available)
        return choice.machine, region, choice.reason

    def _longest(self, available: Sequence[bool]) -> int:
        """The available region whose spell most probably lasts six hours more."""
        places = [place for place, is_there in enumerate(available) if is_there]
        return max(places, key=lambda place: self._regions[place].survives(21600.0))

    def _moves_per_s(self) -> float:
        if len(self._regions) == 1:
            return 0.0
        ends: NDArray[np.float64] = np.array([m.hazards()[1] for m in self._regions])
        best = ends.mean(axis=1).min()
        union = self._union.hazards()[1].mean()
        return float(max(0.0, best - union))


def first_available(situation: Situation) -> int | None:
    """The region of the last spot machine if it has capacity, else the first one."""
    if situation.available[situation.region]:
        return situation.region
    return next((i for i, is_there in enumerate(situation.available) if is_there), None)


def must_run_on_demand(job: DeadlineJob, situation: Situation) -> bool:
    """True if the safety net of the rivals holds: two overheads, or one on spot."""
    is_on_spot = (
        situation.machine == Machine.SPOT and situation.available[situation.region]
    )
    overheads = 1 if is_on_spot else 2
    after = situation.remaining_s - situation.gap_s
    return after < situation.work_left_s + overheads * job.overhead_s
