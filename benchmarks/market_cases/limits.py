# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Processor time of one decision, and of a simulated year."""

import time

import numpy as np

from aikido_torch.market._auction import AuctionMarket, BidBrain, simulate_auction
from aikido_torch.market._generate import generate_prices
from aikido_torch.market._planner import Market, Planner, PlannerState, Work
from aikido_torch.market._profiles import PROFILES
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

KINDS, ZONES, BIDS = 10, 6, 20
YEAR_DAYS = 365


def measure_decision(case: Case, context: Context) -> list[Row]:
    random = np.random.default_rng(context.seed)
    kinds = [f"type {number}" for number in range(KINDS)]
    markets = [
        Market(
            name=f"{kind} zone {zone}",
            kind=kind,
            price=float(random.uniform(0.01, 1)),
            deltas=np.sort(random.uniform(0, 0.4, BIDS)),
            survival=np.sort(random.random((BIDS, 61)), axis=1)[:, ::-1],
            on_demand=1.0,
        )
        for kind in kinds
        for zone in range(ZONES)
    ]
    planner = Planner(Work(rates=dict.fromkeys(kinds, 1.0), max_machines=64))
    state = PlannerState(markets=markets)
    seconds = []
    for _ in range(10):
        begin = time.process_time()
        planner.decide(state)
        seconds.append(time.process_time() - begin)
    median = float(np.median(seconds))
    return [case.judge(0, value=1e3 * median, reference=50.0)]


def measure_year(case: Case, context: Context) -> list[Row]:
    trace = generate_prices(PROFILES["calm"], days=YEAR_DAYS + 30, seed=context.seed)
    work = Work(rates={"c3.xlarge": 1.0}, max_machines=32)
    begin = time.process_time()
    market = AuctionMarket(trace, kind="c3.xlarge", on_demand=0.21)
    run = simulate_auction(
        work,
        BidBrain(work),
        [market],
        items=32 * 3600.0 * 24 * YEAR_DAYS * 0.85,
        start_s=10 * 86400.0,
    )
    spent = time.process_time() - begin
    year = spent * YEAR_DAYS * 86400 / run.seconds
    return [case.judge(0, value=year, reference=10.0)]


CASES = [
    Case(
        name="decision",
        what="one decision with 10 types, 6 zones and 20 bids",
        bars=(Bar(what="processor time", of="50 ms", bar=1.0, unit="ms"),),
        measure=measure_decision,
    ),
    Case(
        name="year",
        what="a year of one market in the simulator",
        bars=(Bar(what="processor time", of="10 s", bar=1.0, unit="s"),),
        measure=measure_year,
    ),
]
