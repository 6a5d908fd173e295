# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Comparison of policies: the same jobs, at the same start times, in one simulator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._auction import (
    AuctionMarket,
    AuctionPolicy,
    BidBrain,
    BidOnDemand,
    OnDemandMachines,
    simulate_auction,
    with_checkpoints,
)
from aikido_torch.market._capacity import CapacityPolicy, simulate_capacity
from aikido_torch.market._deadline import DeadlineJob
from aikido_torch.market._deadline_policies import (
    GreedySpot,
    OnDemandOnly,
    SurvivalPolicy,
    UniformProgress,
)
from aikido_torch.market._errors import MarketError
from aikido_torch.market._oracle import oracle_usd
from aikido_torch.market._planner import Work

__all__ = ["Line", "compare_auction", "compare_capacity"]

_HISTORY_S = 20 * 86400.0  # seconds before the job that a policy observes
Progress = Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class Line:
    """Mean figures of one policy.

    Attributes:
        policy: name of the policy.
        usd: mean cost of a job.
        seconds: mean time from start to end; NaN for the oracle.
        missed: jobs that ended after the deadline.
        free_share: part of the machine hours that was refunded.
        jobs: number of simulated jobs.
    """

    policy: str
    usd: float
    seconds: float
    missed: int
    free_share: float
    jobs: int


def compare_capacity(
    job: DeadlineJob,
    available: NDArray[np.bool_],
    gap_s: float,
    *,
    starts: int,
    move_usd: float = 0.0,
    on_progress: Progress = lambda share: None,
) -> list[Line]:
    """All policies and the oracle, on evenly spaced start times of the trace.

    Args:
        available: shape (regions, samples).
        starts: number of start times.

    Raises:
        MarketError: the trace is shorter than the deadline.
    """
    length = int(np.ceil(job.deadline_s / gap_s)) + 1
    room = available.shape[1] - length
    if room < 0:
        raise MarketError(
            f"The trace has {available.shape[1]} samples, and the deadline needs "
            f"{length}. Give a longer trace or an earlier deadline."
        )
    makers: dict[str, Callable[[], CapacityPolicy]] = {
        "planner": lambda: SurvivalPolicy(job, num_regions=len(available)),
        "uniform progress": lambda: UniformProgress(job),
        "greedy spot": lambda: GreedySpot(job),
        "on demand": OnDemandOnly,
    }
    runs: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in makers}
    oracle = []
    for done, start in enumerate(np.linspace(0, room, starts).astype(int)):
        history = available[:, max(0, start - int(_HISTORY_S / gap_s)) : start]
        for name, make in makers.items():
            policy = make()
            for sample in history.T:
                policy.observe(sample, gap_s)
            run = simulate_capacity(
                job, policy, available, gap_s, start=int(start), move_usd=move_usd
            )
            runs[name].append((run.usd, run.done_s, run.is_missed))
        oracle.append(oracle_usd(job, available, gap_s, start=int(start)))
        on_progress((done + 1) / starts)
    lines = [_line(name, found) for name, found in runs.items()]
    return [
        Line(
            policy="offline oracle",
            usd=float(np.mean(oracle)),
            seconds=float("nan"),
            missed=0,
            free_share=0.0,
            jobs=starts,
        ),
        *lines,
    ]


def _line(name: str, runs: Sequence[tuple[float, float, bool]]) -> Line:
    return Line(
        policy=name,
        usd=float(np.mean([run[0] for run in runs])),
        seconds=float(np.mean([run[1] for run in runs])),
        missed=sum(run[2] for run in runs),
        free_share=0.0,
        jobs=len(runs),
    )


def compare_auction(
    work: Work,
    markets: Sequence[AuctionMarket],
    *,
    items: float,
    starts: int,
    history_s: float = 30 * 86400.0,
    checkpoint_share: float = 0.17,
    checkpoint_s: float = 1800.0,
    restart_s: float = 240.0,
    on_progress: Progress = lambda share: None,
) -> list[Line]:
    """All policies on evenly spaced start times, after `history_s` of prices.

    Args:
        items: items of a job.
        starts: number of start times.
        checkpoint_share: part of the run time in which the rival writes checkpoints
            (the paper has 17 %, recalled).
        checkpoint_s: seconds between its checkpoints.
        restart_s: seconds of its restart.

    Raises:
        MarketError: the prices are too short.
    """
    begin = max(market.trace.times_s[0] for market in markets) + history_s
    rates = [work.rate(market.kind) for market in markets]
    longest = items / (min(rates) * work.max_machines)
    end = min(market.trace.times_s[-1] for market in markets) - 4 * longest
    if end < begin:
        raise MarketError(
            f"The prices last {end - begin:.0f} s less than {history_s:g} s of history "
            f"and four times the {longest:.0f} s of the job. Give longer traces."
        )
    rival = with_checkpoints(
        work, share=checkpoint_share, interval_s=checkpoint_s, restart_s=restart_s
    )
    policies: list[tuple[str, Work, AuctionPolicy]] = [
        ("planner", work, BidBrain(work)),
        ("bid on demand, checkpoints", rival, BidOnDemand(rival)),
        ("on demand", work, OnDemandMachines(work)),
    ]
    lines = []
    times = np.linspace(begin, end, starts)
    for place, (name, own, policy) in enumerate(policies):
        runs = []
        for done, start in enumerate(times):
            runs.append(
                simulate_auction(own, policy, markets, items=items, start_s=start)
            )
            on_progress((place * starts + done + 1) / (starts * len(policies)))
        lines.append(
            Line(
                policy=name,
                usd=float(np.mean([run.usd for run in runs])),
                seconds=float(np.mean([run.seconds for run in runs])),
                missed=0,
                free_share=float(np.mean([run.free_share for run in runs])),
                jobs=starts,
            )
        )
    return lines
