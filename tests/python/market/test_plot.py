# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pictures of simulated jobs."""

import numpy as np

from aikido_torch.market import AuctionMarket, DeadlineJob, Work
from aikido_torch.market._auction import BidOnDemand, simulate_auction
from aikido_torch.market._capacity import simulate_capacity
from aikido_torch.market._deadline_policies import GreedySpot
from aikido_torch.market._plot import plot_auction, plot_capacity
from aikido_torch.market._traces import PriceTrace


def test_a_job_with_bids_is_drawn_with_its_prices(tmp_path):
    times = np.arange(0, 86400.0, 600.0)
    prices = np.random.default_rng(0).uniform(0.1, 0.3, len(times))
    market = AuctionMarket(
        PriceTrace(name="zone-b", times_s=times, usd_per_hour=prices),
        kind="m",
        on_demand=0.2,
    )
    work = Work(rates={"m": 1.0}, max_machines=2)
    run = simulate_auction(
        work, BidOnDemand(work), [market], items=7200.0, start_s=3600.0
    )
    path = tmp_path / "run.svg"
    plot_auction(path, run, [market], start_s=3600.0)
    assert path.read_text().count("<path") > 10


def test_a_job_with_a_deadline_is_drawn_with_its_regions(tmp_path):
    job = DeadlineJob(
        work_s=7200.0,
        deadline_s=14400.0,
        overhead_s=300.0,
        spot_usd_per_hour=1.0,
        on_demand_usd_per_hour=3.0,
    )
    available = np.random.default_rng(0).random((2, 60)) < 0.6
    run = simulate_capacity(job, GreedySpot(job), available, 300.0)
    path = tmp_path / "run.png"
    plot_capacity(path, run, job, available, 300.0, start=0)
    assert path.read_bytes().startswith(b"\x89PNG")
