# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Random models, loops and policies with random faults end with equal bits."""

import pytest

from harness import training_cases

NUM_CASES = 20
MANY = 500


@pytest.mark.timeout(200)
def test_all_ranks_end_with_equal_bits_or_a_message_says_why_not(seed):
    first = NUM_CASES * seed
    verdicts = training_cases.try_cases(range(first, first + NUM_CASES))
    print(training_cases.summary(verdicts))
    assert [str(v) for v in verdicts if v.wrong] == []


def test_an_excluded_rank_gets_a_state_in_the_steps_of_every():
    """The others wait for it in a call of the loop, where no rank sends a state."""
    verdicts = training_cases.try_cases([2451])
    assert [str(v) for v in verdicts if v.wrong] == []


def test_a_rank_that_is_excluded_in_the_last_step_returns():
    """Its own calls of that step failed, so the state it gets includes those calls."""
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
