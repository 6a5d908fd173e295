# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Capacity market and its simulator: flat prices, and spot machines that come and go.

Rules: a machine is billed by the second from its launch, also during its overhead. A
spot machine is lost at the sample in which its region has no capacity; the progress
until then counts, because the job keeps its state. Nothing is refunded. On-demand
machines can always be launched. A policy decides at each sample of the trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._deadline import DeadlineJob, Machine
from aikido_torch.market._errors import MarketError

__all__ = ["CapacityPolicy", "CapacityRun", "Situation", "simulate_capacity"]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """State of a job and of the regions at a decision.

    Attributes:
        remaining_s: seconds to the deadline.
        work_left_s: seconds of work left.
        machine: the machine that runs now; NONE after a loss.
        region: index of the region of a running spot machine; else of the last one.
        overhead_left_s: seconds until the running machine makes progress.
        available: for each region, whether it has spot capacity now.
        gap_s: seconds to the next decision.
    """

    remaining_s: float
    work_left_s: float
    machine: Machine
    region: int
    overhead_left_s: float
    available: tuple[bool, ...]
    gap_s: float


class CapacityPolicy(Protocol):
    """Interface of a policy for the capacity market."""

    def observe(self, available: Sequence[bool], gap_s: float) -> None:
        """Takes the next sample, also of the time before the job."""

    def choose(self, situation: Situation) -> tuple[Machine, int, str]:
        """Machine, region of a spot machine, and the reason as one sentence."""


@dataclass(frozen=True, kw_only=True)
class CapacityRun:
    """Result of a simulated job.

    Attributes:
        usd: cost of all machines.
        done_s: seconds from the start to the end of the work.
        is_missed: whether the work ended after the deadline.
        hours: billed hours by machine.
        launches: number of launched machines.
        losses: number of spot machines that were lost.
        events: (seconds, machine, region, reason) of each change.
    """

    usd: float
    done_s: float
    is_missed: bool
    hours: dict[Machine, float]
    launches: int
    losses: int
    events: list[tuple[float, Machine, int, str]] = field(repr=False)


def simulate_capacity(
    job: DeadlineJob,
    policy: CapacityPolicy,
    available: NDArray[np.bool_],
    gap_s: float,
    *,
    start: int = 0,
    move_usd: float = 0.0,
) -> CapacityRun:
    """Runs a job on recorded availability from sample `start` on.

    Args:
        available: shape (regions, samples), of bool; a sample each `gap_s` seconds.
        start: index of the first sample of the job.
        move_usd: cost of a launch in another region than that of the last launch.

    Raises:
        MarketError: the trace ends before the job, or the policy uses spot capacity
            that is not there.
    """
    prices = {
        Machine.NONE: 0.0,
        Machine.SPOT: job.spot_usd_per_hour,
        Machine.ON_DEMAND: job.on_demand_usd_per_hour,
    }
    hours = dict.fromkeys(Machine, 0.0)
    events: list[tuple[float, Machine, int, str]] = []
    machine, region, overhead = Machine.NONE, 0, 0.0
    now, left, usd = 0.0, job.work_s, 0.0
    launches = losses = 0
    for sample in available[:, start:].T:
        policy.observe(sample, gap_s)
        if machine == Machine.SPOT and not sample[region]:
            machine, overhead = Machine.NONE, 0.0
            losses += 1
            events.append((now, machine, region, "The spot machine was lost."))
        situation = Situation(
            remaining_s=job.deadline_s - now,
            work_left_s=left,
            machine=machine,
            region=region,
            overhead_left_s=overhead,
            available=tuple(bool(is_there) for is_there in sample),
            gap_s=gap_s,
        )
        wanted, place, reason = policy.choose(situation)
        if wanted == Machine.SPOT and not sample[place]:
            raise MarketError(
                f"The policy uses a spot machine in region {place} at {now:g} s, which "
                "has no capacity then."
            )
        moves = wanted == Machine.SPOT and place != region
        if wanted != machine or (moves and machine == Machine.SPOT):
            overhead = job.overhead_s if wanted != Machine.NONE else 0.0
            launches += wanted != Machine.NONE
            usd += move_usd if moves and launches > 1 else 0.0
            events.append((now, wanted, place, reason))
        machine = wanted
        region = place if wanted == Machine.SPOT else region
        spent = gap_s if machine == Machine.NONE else min(gap_s, overhead + left)
        if machine != Machine.NONE:
            left -= max(0.0, spent - overhead)
            overhead = max(0.0, overhead - spent)
        hours[machine] += spent / 3600
        usd += prices[machine] * spent / 3600
        now += spent
        if left <= 1e-6:
            return CapacityRun(
                usd=usd,
                done_s=now,
                is_missed=now > job.deadline_s + 1e-6,
                hours=hours,
                launches=launches,
                losses=losses,
                events=events,
            )
    raise MarketError(
        f"The trace ends {now:g} s after the start of the job, with {left:g} s of work "
        "left. Give a longer trace or an earlier start."
    )
