# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decides which machines to rent, from a market with bids and from spot capacity.

Run: python examples/plan_spot.py

Expected output:

    rent 16 in zone with bid ...: ... USD per item, the least of 22 plans.
    probability of eviction within an hour: 0.0001 USD ... 0.4 USD 0.000
    at the start: spot: expected cost to the end ... USD; ...
    at the end of the slack: On demand until the end: ...
"""

import tempfile
from pathlib import Path

import numpy as np

from aikido_torch.market import (
    AuctionMarket,
    DeadlineJob,
    DeadlinePlanner,
    JobState,
    Planner,
    PlannerState,
    Survival,
    Work,
    beta_table,
    read_prices,
)

HOUR = 3600.0


def recorded_prices(folder: Path) -> Path:
    """A file of 30 days of prices, which stands for a recorded market."""
    random = np.random.default_rng(0)
    times = np.arange(0, 30 * 24 * HOUR, 300.0)
    prices = 0.033 + 0.004 * random.random(len(times))
    rows = [f"{t:.0f},{p:.4f}" for t, p in zip(times, prices, strict=True)]
    path = folder / "zone.csv"
    path.write_text("\n".join(["unix_seconds,usd_per_hour", *rows, ""]))
    return path


def plan_with_bids() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (trace,) = read_prices(recorded_prices(Path(folder)))
    market = AuctionMarket(trace, kind="c3.xlarge", on_demand=0.21)
    work = Work(rates={"c3.xlarge": 40.0}, max_machines=16, eviction_s=120)
    state = PlannerState(markets=[market.at(trace.times_s[-1])])
    print(Planner(work).decide(state).reason)
    table = beta_table(trace)
    pairs = zip(table.deltas, table.betas, strict=True)
    text = ", ".join(f"{delta:g} USD {beta:.3f}" for delta, beta in pairs)
    print(f"probability of eviction within an hour: {text}")


def plan_with_deadline() -> None:
    random = np.random.default_rng(0)
    model = Survival()
    for sample in np.repeat(random.random(200) < 0.7, 10):
        model.observe(bool(sample), 300.0)
    job = DeadlineJob(
        work_s=20 * HOUR,
        deadline_s=24 * HOUR,
        overhead_s=600.0,
        spot_usd_per_hour=0.918,
        on_demand_usd_per_hour=3.06,
    )
    planner = DeadlinePlanner(job, model.hazards())
    for name, remaining in (("start", 24 * HOUR), ("end of the slack", 20.1 * HOUR)):
        choice = planner.decide(JobState.start(job, remaining_s=remaining, gap_s=300.0))
        print(f"at the {name}: {choice.reason}")


if __name__ == "__main__":
    plan_with_bids()
    plan_with_deadline()
