# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Generator of markets: seeds, clusters of spikes, and spells of capacity."""

import numpy as np
import pytest

from aikido_torch.market import MarketError
from aikido_torch.market._generate import (
    PriceProfile,
    generate_capacity,
    generate_prices,
    price_statistics,
)
from aikido_torch.market._traces import PriceTrace

PROFILE = PriceProfile(
    on_demand=0.2,
    base=0.03,
    gap_min=6.0,
    jumps_per_hour=(0.5, 0.3, 0.1, 0.02, 0.01),
    clusters_per_day=0.5,
    spikes=4.0,
    pause_min=3.0,
    spike_min=4.0,
    spike_sigma=0.5,
    height=1.5,
    exponent=1.0,
)


def test_equal_seeds_give_equal_paths():
    first, again, other = (
        generate_prices(PROFILE, days=10, seed=seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.times_s, again.times_s)
    assert np.array_equal(first.usd_per_hour, again.usd_per_hour)
    assert not np.array_equal(first.times_s, other.times_s)


def test_prices_have_the_clock_the_spikes_and_the_cap():
    trace = generate_prices(PROFILE, days=100, seed=0)
    found = price_statistics(trace, 0.2)
    assert found.gap_min == pytest.approx(6.0 * np.log(2), rel=0.1)
    assert found.spikes_per_day == pytest.approx(2.0, rel=0.15)
    assert found.spike_min == pytest.approx(4.0, rel=0.15)
    assert found.highest <= 10.0
    assert trace.usd_per_hour.min() >= 0.03


def test_scaled_rates_give_more_spikes():
    twice = generate_prices(PROFILE.scaled(2.0), days=100, seed=0)
    once = generate_prices(PROFILE, days=100, seed=0)
    counts = [price_statistics(trace, 0.2).spikes_per_day for trace in (once, twice)]
    assert counts[1] == pytest.approx(2 * counts[0], rel=0.2)


def test_statistics_by_hand():
    trace = PriceTrace(
        name="z",
        times_s=np.array([0.0, 600.0, 720.0, 3600.0]),
        usd_per_hour=np.array([0.1, 0.4, 0.1, 0.1]),
    )
    found = price_statistics(trace, 0.2)
    assert found.above == pytest.approx(120 / 3600)
    assert found.spike_min == 2.0
    assert found.highest == pytest.approx(2.0)
    assert found.mean == pytest.approx((0.1 * 3480 + 0.4 * 120) / 3600 / 0.2)
    assert found.gap_min == 10.0
    assert found.spikes_per_day == pytest.approx(24.0)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_capacity_has_its_share_of_the_time(share):
    trace = generate_capacity(days=400, seed=0, share=share, spell_s=7200, sigma=0.5)
    assert trace.counts.mean() == pytest.approx(share, abs=0.05)
    assert set(trace.counts.tolist()) == {0, 1}


def test_wrong_arguments_are_refused():
    with pytest.raises(MarketError, match=r"days is 0\.5"):
        generate_prices(PROFILE, days=0.5, seed=0)
    with pytest.raises(MarketError, match="share is 1"):
        generate_capacity(days=1, seed=0, share=1, spell_s=60)
    with pytest.raises(MarketError, match="spell_s 0"):
        generate_capacity(days=1, seed=0, share=0.5, spell_s=0)
