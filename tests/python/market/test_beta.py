# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Probability of eviction, against a count by hand and recorded prices."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from aikido_torch.market import MarketError, beta_table, read_prices
from aikido_torch.market._beta import DELTAS, Evictions
from aikido_torch.market._traces import PriceTrace

FOLDER = "AIKIDO_SPOT_TRACES"
# From the recorded prices of c3.xlarge in us-east-1, 2015-03-11 to 2015-08-31.
GOLDEN = {
    "us-east-1a": (0.6157, 0.4020, 0.1903, 0.1354, 0.1243, 0.1052, 0.0910),
    "us-east-1b": (0.4927, 0.2954, 0.1155, 0.0186, 0.0130, 0.0045, 0.0027),
    "us-east-1e": (0.5107, 0.2240, 0.0416, 0.0226, 0.0222, 0.0219, 0.0219),
}


def random_prices(seed=0, changes=3000):
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(300, changes)) + 60
    steps = random.normal(0, 0.1, changes)
    return PriceTrace(
        name="zone",
        times_s=times,
        usd_per_hour=0.05 * np.exp(np.convolve(steps, np.ones(8), "same")),
    )


def by_hand(trace, delta):
    starts = np.arange(trace.times_s[0], trace.times_s[-1] - 3600, 600)
    evicted = 0
    for start in starts:
        later = (trace.times_s > start) & (trace.times_s <= start + 3600)
        evicted += bool(
            np.any(trace.usd_per_hour[later] > trace.price_at(start) + delta)
        )
    return evicted / len(starts)


def test_the_table_is_the_share_of_starts_with_a_later_price_above_the_bid():
    trace = random_prices()
    table = beta_table(trace, (0.0, 0.003, 0.01))
    assert table.betas == pytest.approx([by_hand(trace, d) for d in table.deltas])


@pytest.mark.parametrize("seed", range(5))
def test_beta_never_grows_with_delta(seed):
    betas = beta_table(random_prices(seed), DELTAS).betas
    assert all(a >= b for a, b in itertools.pairwise(betas))


def test_the_median_time_to_eviction_is_in_minutes():
    trace = PriceTrace(
        name="zone",
        times_s=np.array([0.0, 1200.0, 1260.0, 9000.0]),
        usd_per_hour=np.array([0.1, 0.3, 0.1, 0.1]),
    )
    table = beta_table(trace, (0.1, 1.0))
    assert table.minutes[0] == pytest.approx(15.0)  # starts at 0 and 600 s
    assert np.isnan(table.minutes[1])
    assert table.betas[1] == 0


@pytest.mark.parametrize("zone", GOLDEN)
def test_recorded_prices_give_the_golden_table(zone):
    folder = os.environ.get(FOLDER)
    if not folder:
        pytest.skip(f"recorded prices: set {FOLDER} to their folder")
    (trace,) = read_prices(Path(folder) / "auction" / f"{zone}_c3.xlarge.csv.gz")
    assert beta_table(trace).betas == pytest.approx(GOLDEN[zone], abs=5e-5)


def test_a_short_trace_and_a_negative_delta_are_refused():
    trace = random_prices(changes=50)
    with pytest.raises(MarketError, match="less than the horizon of 864000 s"):
        beta_table(trace, horizon_s=864000)
    with pytest.raises(MarketError, match="delta is -1"):
        beta_table(random_prices(), (-1.0,))


def test_survival_falls_with_time_and_rises_with_the_bid():
    trace = random_prices()
    table = Evictions(trace, (0.0, 0.001, 0.01))
    chances = table.survival(trace.times_s[-1], True, window_s=1e9)
    assert chances.shape == (3, 61)
    assert np.all(np.diff(chances, axis=1) <= 1e-12)
    assert np.all(np.diff(chances, axis=0) >= -1e-12)
    assert np.all(chances[:, 0] == pytest.approx(1.0))


def test_survival_does_not_see_the_future():
    trace = random_prices()
    half = trace.times_s[1500]
    changed = trace.usd_per_hour.copy()
    changed[1500:] *= 100
    other = PriceTrace(name="z", times_s=trace.times_s, usd_per_hour=changed)
    found = [
        Evictions(t, (0.0, 0.01)).survival(half, True, window_s=1e9)
        for t in (trace, other)
    ]
    assert np.array_equal(*found)


def test_survival_without_a_past_is_the_prior():
    trace = random_prices()
    chances = Evictions(trace, (0.0,)).survival(trace.times_s[0], True, window_s=1e9)
    assert chances[0] == pytest.approx(np.linspace(1, 0, 61))
