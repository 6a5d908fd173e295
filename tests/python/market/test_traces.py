# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Recorded markets, and the arguments that they refuse."""

import numpy as np
import pytest

from aikido_torch.market import MarketError
from aikido_torch.market._traces import CapacityTrace, PriceTrace


def prices(times, values):
    return PriceTrace(
        name="zone", times_s=np.array(times, float), usd_per_hour=np.array(values)
    )


def test_a_price_holds_until_the_next_change():
    trace = prices([100, 200, 300], [0.1, 0.3, 0.2])
    assert [trace.price_at(t) for t in (0, 100, 199, 200, 999)] == [
        0.1, 0.1, 0.1, 0.3, 0.2,
    ]  # fmt: skip
    assert trace.span_s == 200


@pytest.mark.parametrize(
    ("bid", "now", "first"),
    [(0.2, 100, 200), (0.05, 150, 150), (0.3, 100, np.inf), (0.1, 0, 200)],
)
def test_the_first_price_above_a_bid(bid, now, first):
    assert prices([100, 200, 300], [0.1, 0.3, 0.2]).first_above(bid, now) == first


def test_a_late_change_is_found_behind_many_others():
    values = np.full(1000, 0.1)
    values[900] = 1.0
    assert prices(np.arange(1000), values).first_above(0.5, 0) == 900


@pytest.mark.parametrize(
    ("times", "values", "text"),
    [
        ([], [], "the market is empty"),
        ([1, 2], [0.1], "2 times and 1 prices"),
        ([1, 1], [0.1, 0.1], "change 2 comes at 1 s, not after 1 s"),
        ([1, 2], [0.1, -1], "negative"),
        ([1, 2], [0.1, np.nan], "not a number"),
    ],
)
def test_wrong_prices_are_refused(times, values, text):
    with pytest.raises(MarketError, match=text):
        prices(times, np.array(values, float))


def test_capacity_counts_machines():
    trace = CapacityTrace(name="zone", gap_s=300, counts=np.array([0, 4, 2]))
    assert trace.has(3).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("gap", "counts", "text"), [(300, [], "empty"), (0, [1], "above 0 s")]
)
def test_wrong_capacity_is_refused(gap, counts, text):
    with pytest.raises(MarketError, match=text):
        CapacityTrace(name="zone", gap_s=gap, counts=np.array(counts))
