# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Figures of the benchmark of elastic jobs, from records by hand."""

import pytest

from benchmarks.elastic import Record, longest_in_medians, result, step_times


def record_of(*ends):
    return Record(ends=dict(enumerate(ends)))


def test_a_step_lasts_until_the_end_of_the_next_one():
    assert step_times(record_of(1.0, 3.0, 4.5)) == {1: 2.0, 2: 1.5}
    assert step_times(Record()) == {}


def test_the_longest_step_is_compared_with_the_median_of_its_member():
    steady = record_of(0.0, 1.0, 2.0, 3.0, 4.0)
    paused = record_of(0.0, 2.0, 4.0, 9.0, 11.0)
    assert longest_in_medians([steady, paused], 1, 4) == pytest.approx(2.5)
    assert longest_in_medians([steady, paused], 1, 2) == pytest.approx(1.0)
    assert longest_in_medians([Record()], 0, 9) == 0.0


@pytest.mark.parametrize(
    ("value", "bar", "is_least", "holds"),
    [
        (0.9, 1.0, False, True),
        (1.1, 1.0, False, False),
        (0, 0.0, False, True),
        (1, 0.0, False, False),
        (96.0, 95.0, True, True),
        (94.0, 95.0, True, False),
    ],
)
def test_a_row_is_judged_by_its_bar(value, bar, is_least, holds):
    assert result("case", "s", value, bar, is_least=is_least).holds is holds
