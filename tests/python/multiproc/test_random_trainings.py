# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Random models, loops and policies under random faults end with equal bits."""

import pytest

from harness import training_cases

NUM_CASES = 20
MANY = 500


@pytest.mark.timeout(200)
def test_all_ranks_end_with_equal_bits_or_a_sentence_says_why_not(seed):
    first = NUM_CASES * seed
    verdicts = training_cases.try_cases(range(first, first + NUM_CASES))
    print(training_cases.summary(verdicts))
    assert [str(v) for v in verdicts if v.wrong] == []


def test_a_rank_that_is_left_out_gets_a_state_in_the_steps_of_every():
    """The others waited for it in a call of the loop, where none gives its state."""
    verdicts = training_cases.try_cases([2451])
    assert [str(v) for v in verdicts if v.wrong] == []


def test_a_rank_that_is_left_out_in_the_last_step_returns():
    """Its own calls of that step failed, so the state has the calls that it has."""
    verdicts = training_cases.try_cases([1577])
    assert [str(v) for v in verdicts if v.wrong] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_trainings(seed):
    first = MANY * (100 + seed)
    verdicts = training_cases.try_cases(range(first, first + MANY))
    print(training_cases.summary(verdicts))
    assert [str(v) for v in verdicts if v.wrong] == []
    reports = [r for v in verdicts for r in v.reports if r is not None]
    assert sum(r.replayed for r in reports) > MANY
    assert sum(r.copied for r in reports) > MANY // 10
    assert sum(r.repairs for r in reports) > 0
