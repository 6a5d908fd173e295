# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

import pytest

from aikido_torch.overlap._iteration import Iteration
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._retune import (
    Retune,
    SumLog,
    busy_time,
    link_of,
    transfer_time,
)

SIZES = (4_000, 30_000, 130_000, 500_000)


def iteration(seconds=1.0):
    return Iteration((), (), seconds, seconds)


def planned(*, seconds=1.0, beta_s=1e-6):
    retune = Retune()
    retune.add_link([(size, 0.001 + beta_s * size) for size in SIZES])
    for _ in range(3):
        retune.add(iteration(seconds), [])
    retune.planned(seconds)
    return retune


def run(retune, count, *, seconds=1.0, beta_s=1e-6):
    """The number of iterations after which it wants a plan; None: never."""
    for number in range(1, count + 1):
        size = SIZES[number % 4]
        retune.add(iteration(seconds), [(0.0, 0.001 + beta_s * size, size)])
        if retune.wants_plan:
            return number
    return None


def test_sums_are_taken_once_and_their_outcomes_stay():
    log = SumLog()
    outcome = SimpleNamespace(duration_ms=500.0)
    log.add(64, 2.0, SimpleNamespace(outcome=lambda: outcome))
    log.add(32, 3.0, SimpleNamespace(outcome=lambda: None))  # a failed sum
    assert log.take() == [(2.0, 2.5, 64)]
    assert log.take() == []
    assert list(log.outcomes) == [outcome]


def test_the_link_is_that_of_the_probe():
    link = planned().link
    assert link.alpha_s == pytest.approx(0.001)
    assert link.beta_s == pytest.approx(1e-6)


def test_nothing_is_wanted_before_the_first_plan_or_without_a_reason():
    retune = Retune()
    assert run(retune, 20) is None
    assert run(planned(), 200) is None


def test_another_rate_of_the_link_is_a_reason():
    retune = planned()
    assert run(retune, 20) is None
    assert run(retune, 100, beta_s=4e-6) == 4
    # Only transfers show the present rate of links, because calls may have waited.
    assert retune.link.beta_s == pytest.approx(1e-6)
    retune.add_link([(size, 0.001 + 4e-6 * size) for size in SIZES])
    retune.planned(1.0)
    assert run(retune, 100, beta_s=4e-6) is None
    assert retune.link.beta_s == pytest.approx(4e-6)


def test_a_wrong_prediction_is_a_reason_less_and_less_often():
    retune = planned()
    waited = []
    for _ in range(3):
        waited.append(run(retune, 1000, seconds=1.5))
        retune.planned(1.0)
    assert waited == [32, 64, 128]


@pytest.mark.parametrize("seconds", [1.0, 1.5])
def test_plans_that_change_nothing_end_the_search(seconds):
    retune = planned()
    waited = []
    while (more := run(retune, 1000, seconds=seconds, beta_s=1e-6)) is not None:
        waited.append(more)
        retune.planned(1.0, is_equal=True)
        if len(waited) == 1:
            assert retune.wants_plan is False
    assert len(waited) == (0 if seconds == 1.0 else 3)


def test_rates_that_go_up_and_down_do_not_plan_for_ever():
    retune = planned()
    num_plans = 0
    for number in range(5000):
        beta_s = 1e-6 if number // 12 % 2 else 1.8e-6
        size = SIZES[number % 4]
        retune.add(iteration(), [(0.0, 0.001 + beta_s * size, size)])
        if retune.wants_plan:
            num_plans += 1
            retune.planned(1.0, is_equal=True)
    assert num_plans == 3


def test_rates_that_change_all_the_time_are_looked_at_less_and_less_often():
    """Even if each plan differs from the last one."""
    retune = planned()
    at = []
    for number in range(1000):
        beta_s = 1e-6 if number // 6 % 2 else 4e-6
        size = SIZES[number % 4]
        retune.add(iteration(), [(0.0, 0.001 + beta_s * size, size)])
        if retune.wants_plan:
            at.append(number)
            retune.planned(1.0)
    assert 2 <= len(at) <= 5
    assert at[2] - at[1] == 4 * (at[1] - at[0]) == 16 * (at[0] + 1)


def test_another_cost_of_the_link_begins_the_search_again():
    retune = planned()
    for _ in range(3):
        retune.planned(1.0, is_equal=True)
    assert run(retune, 200) is None
    assert run(retune, 200, beta_s=4e-6) is not None
    retune.planned(1.0)  # a different plan
    assert run(retune, 300, beta_s=4e-6) is None
    assert run(retune, 200, beta_s=1e-6) == 4


def test_what_was_measured_is_shown_until_there_is_more():
    retune = planned(seconds=3.0)
    assert (retune.measured_s, retune.is_measured) == (3.0, False)
    assert retune.iteration.compute_s == 3.0
    retune.planned(3.0)
    assert retune.measured_s == 3.0
    run(retune, 1, seconds=2.0)
    assert (retune.measured_s, retune.is_measured) == (2.0, True)


def test_the_measured_time_is_of_late():
    retune = Retune()
    assert retune.measured_s is None
    run(retune, 20, seconds=3.0)
    run(retune, 8, seconds=2.0)
    assert retune.measured_s == 2.0
    assert retune.iteration.compute_s == 2.0


@pytest.mark.parametrize(
    ("sums", "time"),
    [
        ([(0.0, 2.0, 10)], (10, 2.0)),
        # One sum begins during another: 3 s for both.
        ([(1.0, 3.0, 30), (0.0, 2.0, 10)], (20, 1.5)),
        # One sum lies within another.
        ([(0.0, 4.0, 30), (1.0, 2.0, 10)], (20, 2.0)),
        # Nothing was sent between them.
        ([(0.0, 1.0, 10), (2.0, 5.0, 30)], (20, 2.0)),
    ],
)
def test_a_busy_link_is_as_good_as_its_mean_sum(sums, time):
    assert busy_time(sums) == time


@pytest.mark.parametrize(
    ("ranks", "time"),
    [
        # Rank 1 calls 3 s later.
        ([[(0.0, 5.0, 10)], [(3.0, 5.0, 10)]], (10, 2.0)),
        # The second sum waits for the end of the first.
        ([[(0.0, 2.0, 10), (1.0, 5.0, 30)]] * 2, (20, 2.5)),
        # Each rank is late with one of them.
        (
            [[(0.0, 4.0, 10), (7.0, 8.0, 30)], [(3.0, 4.0, 10), (5.0, 8.0, 30)]],
            (20, 1.0),
        ),
        # It ends when the last rank has received it.
        ([[(0.0, 4.0, 10)], [(0.0, 5.0, 10)]], (10, 5.0)),
        # The more urgent sum is sent first.
        ([[(0.0, 5.0, 10), (1.0, 3.0, 30)]] * 2, (20, 2.5)),
        ([[(0.0, 5.0, 10)], [(0.0, 5.0, 20)]], None),
        ([[], []], None),
    ],
)
def test_a_transfer_begins_when_the_last_has_called_and_the_link_is_free(ranks, time):
    assert transfer_time(ranks) == time


@pytest.mark.parametrize("is_one_clock", [True, False])
def test_costs_of_a_plan_are_those_of_transfers_whoever_is_late(is_one_clock):
    """Calls of rank 0 take 20 ms longer, because rank 1 is late."""
    retune = planned(beta_s=6e-8)
    of_ranks = [[], []]
    for number in range(8):
        size = SIZES[number % 4]
        took = 0.001 + 6e-8 * size
        of_ranks[0].append([(0.0, 0.02 + took, size)])
        of_ranks[1].append([(0.02, 0.02 + took, size)])
        retune.add(iteration(), of_ranks[0][-1])
    assert retune.sums_by(0.0) == of_ranks[0]
    assert retune.sums_by(50.0)[0][0][0] == 50.0
    retune.add_transfers(of_ranks, is_one_clock=is_one_clock)
    assert retune.link.alpha_s == pytest.approx(0.001, rel=0.01)
    assert retune.link.beta_s == pytest.approx(6e-8, rel=0.01)
    assert retune.uncertainty == pytest.approx(0, abs=1e-6)


def test_the_uncertainty_is_how_far_transfers_lie_from_their_fit():
    retune = Retune()
    assert retune.uncertainty is None
    for number in range(32):
        size = SIZES[number % 4]
        factor = 1.2 if number // 4 % 2 else 0.8
        retune.add_link([(size, factor * (0.001 + 1e-6 * size))])
    assert 0.1 < retune.uncertainty < 0.35


def test_a_trial_comes_before_all_other_reasons_for_a_plan():
    retune = planned()
    retune.trial.begin(
        Layout((("a",), ("b",)), (1, 0), 1.0), Layout((("a", "b"),), (0,))
    )
    assert run(retune, 100, seconds=1.5) == 5
    assert retune.trial.is_due


def test_a_gain_is_possible_if_waiting_takes_more_than_a_twentieth():
    for waited_s, is_wanted in ((0.04, False), (0.06, True)):
        retune = Retune()
        wanted = []
        for _ in range(4):
            retune.add(Iteration((), (), 1.0 - waited_s, 1.0), [])
            wanted.append(retune.wants_plan)
        assert wanted == [False, False, is_wanted, is_wanted]


def test_the_cost_of_a_turn_is_the_mean_of_its_usual_transfers():
    assert link_of([]) is None
    assert link_of([(0.0, 1.0)]) is None
    link = link_of([(10.0, 9.0), (10.0, 2.0), (10.0, 3.0), (10.0, 1.0)])
    assert (link.alpha_s, link.beta_s) == (0.0, pytest.approx(0.25))
