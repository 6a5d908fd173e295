# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from benchmarks.reassign_cases.cases import NEAR_IDEAL, beside_ideal
from benchmarks.reassign_cases.figures import (
    Record,
    Turns,
    arms_table,
    distance_of_curves,
)
from benchmarks.reassign_cases.plan import DDP, REASSIGN, Training
from benchmarks.straggler_cases.case import Case, CaseError

# The ideal of a step is 80 ms.
USUAL = Training(arm=DDP, num_ranks=2, items=8, item_ms=10.0, steps=2, warm_up=1)


def seen(ends, **values):
    usual = {
        "ends": ends,
        "losses": [8.0, 4.0, 2.0],
        "taken": 0,
        "gap_s": {"own": 0.010, "taken": 0.0},
        "gaps": {"own": 10, "taken": 0},
        "fingerprint": 1,
    }
    return usual | values


def record(arm=DDP, step_s=0.08, **values):
    ends = [1.0, 1.0 + step_s, 1.0 + 2 * step_s]
    training = dataclasses.replace(USUAL, arm=arm)
    return Record(training, {0: seen(ends, **values), 1: seen(ends)})


def test_a_step_ends_with_its_last_rank_and_the_first_ones_do_not_count():
    found = Record(USUAL, {0: seen([1.0, 1.1, 1.2]), 1: seen([1.02, 1.1, 1.26])})
    assert found.step_s == pytest.approx((1.26 - 1.02) / 2)
    assert found.over_ideal == pytest.approx(0.12 / 0.08)


def test_losses_are_means_over_all_micro_batches():
    assert record().losses.tolist() == [1.0, 0.5, 0.25]


@pytest.mark.parametrize(
    "by_rank", [{0: seen([])}, {0: seen([]), 1: seen([], fingerprint=2)}]
)
def test_missing_ranks_and_different_parameters_are_refused(by_rank):
    with pytest.raises(CaseError, match="DDP"):
        Record(USUAL, by_rank).check()
    record().check()


def test_the_median_over_the_turns_counts():
    turns = Turns([record(step_s=s) for s in (0.08, 0.24, 0.16)])
    (arm,) = turns.arms()
    assert arm.step_ms == pytest.approx(160)
    assert arm.over_ideal == pytest.approx(2.0)
    assert arm.turns_over_ideal == pytest.approx((1.0, 3.0, 2.0))


def test_arms_are_compared_within_their_turn():
    turns = Turns(
        record(arm, step_s)
        for arm, step_s in ((DDP, 0.1), (REASSIGN, 0.05), (DDP, 0.4), (REASSIGN, 0.2))
    )
    assert turns.over(REASSIGN, DDP) == pytest.approx(0.5)
    with pytest.raises(CaseError, match="slack"):
        turns.of("slack")


def test_overhead_is_the_additional_gap_before_a_taken_micro_batch():
    gaps = {"gap_s": {"own": 0.010, "taken": 0.006}, "gaps": {"own": 10, "taken": 4}}
    turns = Turns([record(REASSIGN, taken=4, **gaps)])
    assert turns.overhead_ms(REASSIGN) == pytest.approx(0.5)
    assert turns.arms()[0].moved == 2.0
    with pytest.raises(CaseError, match="no taken micro-batch"):
        Turns([record(REASSIGN)]).overhead_ms(REASSIGN)


def test_the_distance_of_curves_is_the_largest_one_in_units_of_the_noise():
    other = [np.array([1.0, 3.0]), np.array([3.0, 5.0])]  # deviation 2 ** 0.5
    own = [np.array([2.0, 5.0]), np.array([2.0, 5.0])]
    assert distance_of_curves(own, other) == pytest.approx(1 / 2**0.5)
    assert distance_of_curves(other, other) == 0.0


def test_the_table_shows_every_arm_beside_the_ideal():
    case = Case(name="slow", what="", bars=(NEAR_IDEAL,), measure=lambda *_: [])
    turns = Turns([record(DDP, 0.16), record(REASSIGN, 0.084, taken=6)])
    row = beside_ideal(case, turns)
    assert row.result.ratio == pytest.approx(1.05)
    assert row.result.reference == pytest.approx(80.0)
    assert row.verdict == "holds"
    console = Console(file=io.StringIO(), width=100)
    console.print(arms_table([row]))
    told = console.file.getvalue()
    for text in ("slow", "DDP", "160", "2.000", "reassign", "84", "1.050", "3"):
        assert text in told
