# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math

import numpy as np
import pytest

from aikido_torch.trace.analyze._detect import find
from aikido_torch.trace.analyze._gaps import filled, known_part


def test_a_gap_gets_the_level_of_its_row_and_the_offset_of_its_column():
    table = np.array([[1.0, 1.0, 1.5], [3.0, 3.0, math.nan], [2.0, 2.0, 2.5]])
    rows, columns, known = known_part(table)
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 2], [0, 1, 2])
    assert filled(table, known)[1, 2] == pytest.approx(3.5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("columns", [3, 4, 8])
@pytest.mark.parametrize("short_s", [0.015, 0.03])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_column_without_values_in_the_shorter_rows_is_judged_by_the_longer_ones(
    columns, short_s, is_late
):
    noise = np.random.default_rng(columns).normal(0, 5e-4, (20, columns))
    level = np.where(np.arange(20) % 2, short_s, 0.045)
    table = level[:, None] + noise
    if is_late:
        table[:, 1] += 0.03
    table[1::2, 1] = math.nan
    found = find(table, 0.05)
    assert {slow.column for slow in found.slow} == ({1} if is_late else set())
    for slow in found.slow:
        assert slow.rows == tuple(range(0, 20, 2))


@pytest.mark.filterwarnings("error")
def test_rows_without_values_count_for_nothing():
    table = np.full((12, 4), 0.09)
    table[:, 2] += 0.02
    table[[0, 5]] = math.nan
    (slow,) = find(table, 0.1).slow
    assert slow.column == 2
    assert slow.rows == (1, 2, 3, 4, 6, 7, 8, 9, 10, 11)
    for nothing in (table[:0], table[:, :0], np.full((3, 3), math.nan)):
        assert find(nothing, 0.1).pattern == "none"
