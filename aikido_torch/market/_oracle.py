# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Least cost of a job that knows the whole trace: a bound for each policy.

Exact dynamic programme over (sample, machine and region, slack). A launch takes the
overhead from the slack at once. That is exact, because a plan that launches a machine
and stops it during its overhead costs more than to wait. Slack is counted in units that
divide all times of the job. If such a grid is too large, times are rounded down, and
the result is a lower bound.
"""

import math

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._deadline import DeadlineJob

__all__ = ["oracle_usd"]

_FAR = 1e12


def oracle_usd(
    job: DeadlineJob,
    available: NDArray[np.bool_],
    gap_s: float,
    *,
    start: int = 0,
    max_points: int = 6000,
) -> float:
    """Least cost in USD by the rules of `simulate_capacity`, with free moves.

    Args:
        available: shape (regions, samples), of bool.
        gap_s: seconds between samples.
        start: index of the first sample of the job.
        max_points: most points of the grid of slack.
    """
    times = [round(t) for t in (gap_s, job.work_s, job.deadline_s, job.overhead_s)]
    most = job.deadline_s - job.work_s
    unit = max(math.gcd(*times), math.ceil(most / max_points), 1)
    size = int(most // unit) + 1
    gap, launch = int(gap_s // unit), int(job.overhead_s // unit)
    slack = np.arange(size) * float(unit)
    regions = available.shape[0]
    num_samples = math.ceil(job.deadline_s / gap_s)
    machines = regions + 2  # none, on demand, then a spot machine of each region
    ahead = np.full((machines, size), _FAR)
    left = job.deadline_s - num_samples * gap_s
    ahead[:, left - slack <= 0] = 0.0
    rates = np.full(machines, job.spot_usd_per_hour / 3600)
    rates[:2] = 0.0, job.on_demand_usd_per_hour / 3600
    for index in range(num_samples - 1, -1, -1):
        work = job.deadline_s - index * gap_s - slack
        used = np.clip(work, 0.0, gap_s)
        runs = np.where(work <= gap_s, 0.0, ahead) + rates[:, None] * used
        runs[0] = _less_slack(ahead[0], gap)
        runs[2:][~available[:, start + index]] = _FAR
        # A launch adds to the work, which may then not end within the sample.
        best_launch = np.full(size, _FAR)
        for machine in range(1, machines):
            if runs[machine, 0] < _FAR or runs[machine, -1] < _FAR:
                best_launch = np.minimum(
                    best_launch, _less_slack(runs[machine], launch)
                )
        ahead = np.minimum(runs, np.minimum(runs[0], best_launch))
        ahead[:, work <= 0] = 0.0
    return float(ahead[0, -1])


def _less_slack(costs: NDArray[np.float64], units: int) -> NDArray[np.float64]:
    if units == 0:
        return costs
    moved = np.full_like(costs, _FAR)
    if units < len(costs):
        moved[units:] = costs[:-units]
    return moved
