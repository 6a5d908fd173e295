# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Simulator of the auction market: hours, refunds and evictions."""

import math

import numpy as np
import pytest

from aikido_torch.market import AuctionMarket, MarketError, Work
from aikido_torch.market._auction import (
    BidBrain,
    BidOnDemand,
    OnDemandMachines,
    simulate_auction,
    with_checkpoints,
)
from aikido_torch.market._traces import PriceTrace

WORK = Work(rates={"m": 1.0}, max_machines=2, eviction_s=60.0, resize_s=0.0)
DAY = 86400.0


def market(*changes, end=10 * DAY):
    times, prices = zip(*changes, strict=True)
    trace = PriceTrace(
        name="zone",
        times_s=np.array([*times, end], float),
        usd_per_hour=np.array([*prices, prices[-1]], float),
    )
    return AuctionMarket(trace, kind="m", on_demand=1.0)


def run(policy, *markets, hours=3, work=WORK, start=0.0):
    return simulate_auction(
        work, policy, markets, items=2 * 3600 * hours, start_s=start
    )


def test_each_hour_has_the_price_of_its_start():
    result = run(BidOnDemand(WORK), market((0, 0.1), (1800, 0.2), (4000, 0.3)))
    assert result.usd == pytest.approx(2 * (0.1 + 0.2 + 0.3))
    assert result.seconds == 3 * 3600
    assert result.evictions == 0


def test_an_interrupted_hour_is_refunded():
    result = run(BidOnDemand(WORK), market((0, 0.1), (5400, 2.0), (5500, 0.1)))
    assert result.evictions == 1
    # An hour is paid, half an hour is free, then work goes on after 120 s.
    assert result.free_hours == pytest.approx(2 * 0.5)
    assert result.free_share == pytest.approx(1 / (1 + result.paid_hours))
    assert result.usd == pytest.approx(2 * 0.1 * (1 + 2))
    assert result.seconds == pytest.approx(3 * 3600 + 120)


def test_an_eviction_pauses_the_job():
    slow = Work(rates={"m": 1.0}, max_machines=2, eviction_s=1000.0, resize_s=0.0)
    prices = market((0, 0.1), (5400, 2.0), (5500, 0.1))
    quick = run(BidOnDemand(WORK), prices)
    assert run(BidOnDemand(slow), prices, work=slow).seconds == pytest.approx(
        quick.seconds + 1000 - 120
    )


def test_on_demand_machines_are_never_evicted():
    result = run(OnDemandMachines(WORK), market((0, 0.1), (100, 5.0)))
    assert result.usd == pytest.approx(2 * 3 * 1.0)
    assert result.usd_per_item == pytest.approx(1.0 / 3600)


def test_checkpoints_take_a_share_of_the_time():
    work = with_checkpoints(WORK, share=0.25, interval_s=1800, restart_s=100)
    assert work.rates["m"] == 0.75
    assert work.eviction_s == 1000
    result = run(BidOnDemand(work), market((0, 0.1)), work=work)
    assert result.seconds == pytest.approx(4 * 3600)


def saw(seed=0, days=40):
    random = np.random.default_rng(seed)
    times = np.arange(0, days * DAY, 300.0)
    prices = 0.15 + 0.02 * np.round(random.random(len(times)), 3)
    return AuctionMarket(
        PriceTrace(name="zone", times_s=times, usd_per_hour=prices),
        kind="m",
        on_demand=1.0,
    )


def test_the_planner_uses_refunded_hours_and_costs_less():
    prices = saw()
    start = 20 * DAY
    brain = run(BidBrain(WORK), prices, hours=48, start=start)
    rival_work = with_checkpoints(WORK, share=0.17, interval_s=1800, restart_s=240)
    rival = run(BidOnDemand(rival_work), prices, hours=48, work=rival_work, start=start)
    assert brain.free_share > 0.1
    assert brain.usd < 0.6 * rival.usd
    assert brain.usd < 0.2 * run(OnDemandMachines(WORK), prices, hours=48).usd


def test_the_planner_does_not_see_the_future():
    early = saw()
    times = early.trace.times_s
    changed = early.trace.usd_per_hour.copy()
    changed[times > 25 * DAY] *= 10
    other = AuctionMarket(
        PriceTrace(name="zone", times_s=times, usd_per_hour=changed),
        kind="m",
        on_demand=1.0,
    )
    found = [run(BidBrain(WORK), m, hours=48, start=20 * DAY) for m in (early, other)]
    assert found[0].events == found[1].events


def test_a_year_of_one_market_is_simulated_to_its_end():
    result = run(BidBrain(WORK), saw(days=10), hours=150, start=2 * DAY)
    assert result.items == 2 * 3600 * 150
    hours = result.paid_hours + result.free_hours
    assert hours >= 2 * 150
    assert not math.isnan(result.usd)


def test_the_end_of_the_prices_is_an_error():
    with pytest.raises(MarketError, match="The prices end 86400 s after the start"):
        run(OnDemandMachines(WORK), market((0, 0.1), end=DAY), hours=48)


class Low:
    def decide(self, state):
        from aikido_torch.market._planner import Allocation

        low = Allocation(market=0, count=1, bid=0.01, price=0.01, hour_left_s=3600)
        return [], low, "low"


def test_a_bid_below_the_price_is_refused():
    with pytest.raises(MarketError, match=r"bids 0\.01 USD in zone, below the price"):
        run(Low(), market((0, 0.1)))
