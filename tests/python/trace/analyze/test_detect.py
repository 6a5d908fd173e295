# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math
from statistics import NormalDist

import numpy as np
import pytest

from aikido_torch.trace.analyze._detect import _chance_of_rows, _t_quantile, find

STEP_S = 0.1


def quiet(rows, columns, late=()):
    """A table without noise; `late` has (row, column, additional seconds)."""
    table = np.full((rows, columns), 0.09)
    for row, column, seconds in late:
        table[row, column] += seconds
    return table


def steady(rows, columns, slow, seconds=0.02):
    return quiet(rows, columns, [(t, r, seconds) for t in range(rows) for r in slow])


def seen(table):
    found = find(table, STEP_S)
    return found.pattern, {slow.column for slow in found.slow}


@pytest.mark.parametrize("columns", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("rows", [3, 5, 20, 50])
def test_up_to_half_of_the_columns_can_be_slow(columns, rows):
    for number in {1, max(1, columns // 4), columns // 2}:
        slow = set(range(columns - number, columns))
        assert seen(steady(rows, columns, slow)) == ("steady", slow)


@pytest.mark.parametrize("columns", [3, 4, 8])
def test_a_column_faster_than_all_others_makes_no_column_slow(columns):
    table = quiet(5, columns)
    table[:, 1] -= 0.05
    assert seen(table) == ("none", set())
    table[:, 0] += 0.03
    assert seen(table) == ("steady", {0})


@pytest.mark.parametrize("columns", [2, 3, 4, 8])
def test_another_slow_column_in_each_row_is_a_moving_loss(columns):
    table = quiet(12, columns, [(t, t % columns, 0.02) for t in range(12)])
    assert seen(table) == ("rotating", set(range(columns)))


@pytest.mark.parametrize("is_of_all", [True, False])
@pytest.mark.parametrize("seconds", [0.01, 0.02, 0.03])
@pytest.mark.parametrize("columns", [2, 3, 4, 8])
def test_a_long_row_does_not_hide_a_moving_loss(columns, seconds, is_of_all):
    late = [(t, t % columns, 0.02) for t in range(18)]
    longer = range(columns) if is_of_all else [6 % columns]
    table = quiet(18, columns, late + [(5, r, seconds) for r in longer])
    assert seen(table) == ("rotating", set(range(columns)))


@pytest.mark.parametrize("rows", [5, 12, 18])
def test_rows_that_are_long_in_both_columns_make_no_column_slow(rows):
    late = [(t, r, 0.02) for t in range(0, rows, 2) for r in (0, 1)]
    assert seen(quiet(rows, 2, late)) == ("none", set())


@pytest.mark.parametrize("columns", [2, 3, 4, 8, 64])
def test_one_long_row_of_a_column_is_a_transient_loss(columns):
    assert seen(quiet(8, columns, [(3, 1, 0.03)])) == ("transient", {1})


def test_a_growing_loss_is_drifting():
    late = [(t, 2, 0.004 * (t + 1)) for t in range(10)]
    assert seen(quiet(10, 4, late)) == ("drifting", {2})


def test_a_loss_below_a_tenth_of_a_step_is_ignored():
    assert seen(steady(20, 4, {1}, 0.009)) == ("none", set())
    assert seen(steady(20, 4, {1}, 0.011)) == ("steady", {1})


def test_missing_values_in_a_column_do_not_hide_another_column():
    table = steady(10, 4, {3})
    table[2:5, 0] = math.nan
    table[:7, 1] = math.nan  # too few known values
    assert seen(table) == ("steady", {3})


def test_losses_are_relative_to_the_fastest_half():
    table = steady(5, 4, {1}, 0.02) + np.array([0.0, 0.0, 0.002, 0.0])
    (slow,) = find(table, STEP_S).slow
    assert slow.lost_s == pytest.approx(0.02)
    assert (slow.own_s, slow.usual_s) == pytest.approx((0.11, 0.09))
    assert slow.rows == (0, 1, 2, 3, 4)
    assert slow.total_s == pytest.approx(0.1)


def test_one_row_is_not_enough_for_a_verdict():
    found = find(steady(1, 2, {1}), STEP_S)
    assert found.slow == ()
    assert found.visible_s == math.inf


def test_more_rows_make_smaller_losses_visible():
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.standard_normal((40, 4))
    visible = [find(0.09 + noise[:rows], STEP_S).visible_s for rows in (3, 5, 10, 40)]
    assert visible == sorted(visible, reverse=True)
    assert visible[0] > 0.02 > visible[-1]


def test_a_visible_loss_is_found_in_99_of_100_tables():
    rng = np.random.default_rng(1)
    for columns, rows in ((2, 20), (4, 10), (8, 10)):
        hits = total = 0
        for _ in range(300):
            table = 0.09 + 0.008 * rng.standard_normal((rows, columns))
            visible = find(table, STEP_S).visible_s
            table[:, 0] += max(visible, 0.012)
            hits += seen(table) == ("steady", {0})
            total += 1
        assert hits >= 0.98 * total


SHAPES = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "log-normal": lambda rng, size: np.expm1(0.5 * rng.standard_normal(size)) / 0.55,
    "exponential": lambda rng, size: rng.exponential(size=size),
    "common": lambda rng, size: (
        rng.standard_normal((size[0], 1)) + 0.5 * rng.standard_normal(size)
    ),
    "periodic": lambda rng, size: (
        np.sin(np.arange(size[0]) + rng.uniform(0, 6))[:, None]
        + 0.3 * rng.standard_normal(size)
    ),
    "unequal": lambda rng, size: (
        rng.standard_normal(size) * rng.choice([0.4, 1], size[1])
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_alone_blames_no_column(shape):
    rng = np.random.default_rng(2)
    alarms, total = [], 0
    for columns in (2, 3, 4, 8, 64):
        for rows in (1, 2, 3, 5, 8, 12, 20, 50):
            for _ in range(12 if columns < 64 else 2):
                noise = 0.03 * SHAPES[shape](rng, (rows, columns))
                pattern, slow = seen(np.maximum(0.09 + noise, 0.01))
                total += 1
                if slow:
                    alarms.append((columns, rows, pattern))
    assert len(alarms) <= 1, alarms


@pytest.mark.parametrize(
    ("columns", "rows", "noises"),
    [(8, 20, 25), (4, 50, 25), (8, 50, 25), (64, 20, 25), (2, 20, 60), (8, 5, 60)],
)
def test_one_long_row_far_outside_of_normal_noise_is_found(columns, rows, noises):
    rng = np.random.default_rng(4)
    hits, total = 0, 150 if columns < 64 else 40
    for _ in range(total):
        table = 0.09 + 0.002 * rng.standard_normal((rows, columns))
        table[rows // 2, 0] += 0.002 * noises
        hits += seen(table) == ("transient", {0})
    assert hits >= 0.98 * total


def test_the_largest_value_of_heavy_tails_is_seldom_a_loss():
    rng = np.random.default_rng(5)
    alarms = []
    for columns, rows in ((4, 50), (8, 10), (8, 20), (8, 50)):
        for _ in range(500):
            noise = rng.standard_t(4, (rows, columns)) / math.sqrt(2)
            if seen(np.maximum(0.09 + 0.03 * noise, 0.01))[1]:
                alarms.append((columns, rows))
    assert len(alarms) <= 3, alarms


def test_a_part_of_the_slow_columns_is_never_named_alone():
    """Either all slow columns are named, or the window is too short."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        table = 0.09 + 0.01 * rng.standard_normal((8, 8))
        table[:, :4] += 0.02
        found = find(table, STEP_S)
        assert {slow.column for slow in found.slow} in (set(), {0, 1, 2, 3})


@pytest.mark.parametrize(
    ("level", "freedom", "value"),
    [
        (0.995, 1, 63.657), (0.995, 2, 9.925), (0.995, 4, 4.604), (0.9999, 4, 13.034),
        (0.9999, 12, 5.263), (0.99995, 28, 4.530), (0.995, 200, 2.601),
    ],
)  # fmt: skip
def test_quantiles_match_the_t_distribution(level, freedom, value):
    assert _t_quantile(level, freedom) == pytest.approx(value, rel=2e-3)


def test_quantiles_with_many_degrees_of_freedom_are_normal():
    assert _t_quantile(0.999, 10**6) == pytest.approx(
        NormalDist().inv_cdf(0.999), rel=1e-4
    )


def test_the_chance_of_rows_counts_all_combinations():
    # 2 of 4 values in 2 rows of 2: 4 of the 6 ways hit both rows.
    assert _chance_of_rows(2, 2, 2) == pytest.approx(4 / 6)
    assert _chance_of_rows(1, 2, 2) == 1.0
