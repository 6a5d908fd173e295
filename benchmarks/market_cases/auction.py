# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Auction market: tables of eviction, the generator, and the cost per unit of work."""

import functools
from collections.abc import Sequence
from pathlib import Path

from aikido_torch.market._auction import AuctionMarket
from aikido_torch.market._beta import beta_table
from aikido_torch.market._compare import compare_auction
from aikido_torch.market._generate import generate_prices
from aikido_torch.market._planner import Work
from aikido_torch.market._profiles import PROFILES, accepted_prices, deviation
from aikido_torch.market._read import read_prices
from aikido_torch.market._traces import PriceTrace
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

ON_DEMAND = 0.21  # USD per hour of c3.xlarge
MACHINES, HOURS = 32, 24.0
DAYS = 173.0
# Published tables of c3.xlarge in us-east-1, 2015-03-11 to 2015-08-31.
GOLDEN = {
    "us-east-1a": (0.6157, 0.4020, 0.1903, 0.1354, 0.1243, 0.1052, 0.0910),
    "us-east-1b": (0.4927, 0.2954, 0.1155, 0.0186, 0.0130, 0.0045, 0.0027),
    "us-east-1e": (0.5107, 0.2240, 0.0416, 0.0226, 0.0222, 0.0219, 0.0219),
}


def recorded(folder: Path | None) -> list[PriceTrace]:
    if folder is None:
        raise CaseError("recorded prices: give --traces FOLDER")
    paths = sorted((folder / "auction").glob("*.csv.gz"))
    return [trace for path in paths for trace in read_prices(path)]


def measure_beta(folder: Path | None, case: Case, context: Context) -> list[Row]:
    worst = 0.0
    for trace in recorded(folder):
        golden = GOLDEN.get(trace.name.split("_")[0])
        if golden is not None:
            betas = beta_table(trace).betas
            worst = max(
                worst, *(abs(a - b) for a, b in zip(betas, golden, strict=True))
            )
    return [case.judge(0, value=worst, reference=1.0)]


def measure_generator(case: Case, context: Context) -> list[Row]:
    rows = []
    for number, name in enumerate(PROFILES):
        trace = accepted_prices(name, days=DAYS, seed=context.seed)
        rows.append(case.judge(number, value=deviation(name, trace), reference=1.0))
        context.on_progress((number + 1) / len(PROFILES))
    return rows


def measure_cost(
    traces: Sequence[PriceTrace], case: Case, context: Context
) -> list[Row]:
    work = Work(
        rates={"c3.xlarge": 1.0}, max_machines=MACHINES, eviction_s=120, resize_s=30
    )
    markets = [AuctionMarket(t, kind="c3.xlarge", on_demand=ON_DEMAND) for t in traces]
    lines = compare_auction(
        work,
        markets,
        items=MACHINES * HOURS * 3600,
        starts=100,
        on_progress=context.on_progress,
    )
    planner, rival, on_demand = lines
    note = (
        f"{planner.free_share:.0%} of the machine hours were free; "
        f"{planner.seconds / 3600:.1f} h beside {rival.seconds / 3600:.1f} h"
    )
    return [
        case.judge(0, value=planner.usd, reference=rival.usd, note=note),
        case.judge(1, value=planner.usd, reference=on_demand.usd),
    ]


def measure_recorded(folder: Path | None, case: Case, context: Context) -> list[Row]:
    return measure_cost(recorded(folder), case, context)


def measure_generated(case: Case, context: Context) -> list[Row]:
    traces = [accepted_prices(name, days=DAYS, seed=context.seed) for name in PROFILES]
    return measure_cost(traces, case, context)


def measure_other(case: Case, context: Context) -> list[Row]:
    """Markets with other rates of jumps and spikes than the planner was tried on."""
    traces = [
        generate_prices(profile.scaled(factor), days=DAYS, seed=context.seed + place)
        for place, (profile, factor) in enumerate(
            zip(PROFILES.values(), (2.0, 0.5, 0.7), strict=True)
        )
    ]
    return measure_cost(traces, case, context)


def cases(folder: Path | None) -> list[Case]:
    """The cases, with the folder of recorded markets."""
    costs = (
        Bar(what="cost", of="bid on demand with checkpoints", bar=0.6, unit="USD"),
        Bar(what="cost", of="on demand", bar=0.2, unit="USD"),
    )
    return [
        Case(
            name="beta",
            what="tables of eviction beside published ones",
            bars=(Bar(what="largest difference", of="1", bar=5e-5, unit=""),),
            measure=functools.partial(measure_beta, folder),
        ),
        Case(
            name="generator",
            what="tables and statistics of generated prices",
            bars=tuple(
                Bar(what=f"{name}, largest deviation", of="1", bar=0.2, unit="")
                for name in PROFILES
            ),
            measure=measure_generator,
        ),
        Case(
            name="auction-recorded",
            what="32 machines for 24 h in three zones, 100 starts",
            bars=costs,
            measure=functools.partial(measure_recorded, folder),
        ),
        Case(
            name="auction-generated",
            what="the same in generated zones",
            bars=costs,
            measure=measure_generated,
        ),
        Case(
            name="auction-other",
            what="the same with twice, half and 0.7 of the jumps and spikes",
            bars=costs,
            measure=measure_other,
        ),
    ]
