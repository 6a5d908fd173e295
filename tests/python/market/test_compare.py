# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Comparison of policies in one simulator."""

import numpy as np
import pytest

from aikido_torch.market import AuctionMarket, DeadlineJob, MarketError, Work
from aikido_torch.market._compare import compare_auction, compare_capacity
from aikido_torch.market._traces import PriceTrace

JOB = DeadlineJob(
    work_s=7200.0,
    deadline_s=14400.0,
    overhead_s=300.0,
    spot_usd_per_hour=1.0,
    on_demand_usd_per_hour=3.0,
)


def test_capacity_has_a_line_for_each_policy_and_the_oracle_is_the_least():
    available = np.random.default_rng(0).random((1, 200)) < 0.7
    shares = []
    lines = compare_capacity(JOB, available, 300.0, starts=3, on_progress=shares.append)
    assert [line.policy for line in lines] == [
        "offline oracle",
        "planner",
        "uniform progress",
        "greedy spot",
        "on demand",
    ]
    assert min(lines, key=lambda line: line.usd) is lines[0]
    assert all(line.missed == 0 and line.jobs == 3 for line in lines)
    assert shares[-1] == 1.0


def test_auction_has_a_line_for_each_policy():
    times = np.arange(0, 12 * 86400.0, 600.0)
    trace = PriceTrace(
        name="zone",
        times_s=times,
        usd_per_hour=np.random.default_rng(0).uniform(0.1, 0.12, len(times)),
    )
    lines = compare_auction(
        Work(rates={"m": 1.0}, max_machines=2),
        [AuctionMarket(trace, kind="m", on_demand=1.0)],
        items=2 * 3600 * 10,
        starts=2,
        history_s=5 * 86400.0,
    )
    costs = [line.usd for line in lines]
    assert costs == sorted(costs)
    assert lines[0].free_share > 0


def test_short_traces_are_refused():
    with pytest.raises(MarketError, match="has 10 samples, and the deadline needs 49"):
        compare_capacity(JOB, np.ones((1, 10), bool), 300.0, starts=1)
    trace = PriceTrace(
        name="z", times_s=np.arange(0, 9e4, 600.0), usd_per_hour=np.full(150, 0.1)
    )
    with pytest.raises(MarketError, match="Give longer traces"):
        compare_auction(
            Work(rates={"m": 1.0}, max_machines=1),
            [AuctionMarket(trace, kind="m", on_demand=1.0)],
            items=3600.0,
            starts=1,
        )
