# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from dataclasses import replace

import pytest

from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._trial import Trial

PLAIN = Layout((("a", "b"),), (0,), name="plain buckets", is_plain=True)
PLAN = Layout((("a",), ("b",)), (1, 0), 1.0, name="alone, by TAC")


def turn_over(trial, corrected_s=None):
    """Ends a turn of the trial; returns the layout that is adopted then."""
    if trial.plan_to_correct is not None and corrected_s is not None:
        trial.correct(corrected_s)
    layout, is_over = trial.next()
    trial.adopted(layout, is_over=is_over)
    return layout


def run(trial, *, plan_s, plain_s, corrected_s=None):
    """The layout in use at the end."""
    used = PLAN
    while trial.is_on:
        trial.add(plain_s if used.sends_as(PLAIN) else plan_s)
        if trial.is_due:
            used = turn_over(trial, corrected_s)
    return used


@pytest.mark.parametrize(
    ("plan_s", "plain_s", "name"),
    [
        (1.0, 1.2, PLAN.name),
        (1.0, 0.9, PLAIN.name),
        # A plan without a gain is not worth its hooks.
        (1.0, 1.0, PLAIN.name),
        (1.0, 1.01, PLAIN.name),
        (1.0, 1.03, PLAN.name),
        # Measured times up to a tenth from the prediction, and further from it.
        (1.09, 1.3, PLAN.name),
        (1.11, 1.3, PLAIN.name),
        (0.91, 1.3, PLAN.name),
        (0.89, 1.3, PLAIN.name),
    ],
)
def test_a_plan_is_used_if_it_is_faster_and_predicted(plan_s, plain_s, name):
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    used = run(trial, plan_s=plan_s, plain_s=plain_s)
    assert used.name == name
    assert trial.has_rejected(PLAN) == (name == PLAIN.name)
    assert f"the plan took {1e3 * plan_s:.1f} ms" in trial.verdict
    assert ("(predicted: 1000.0 ms)" in trial.verdict) == (abs(plan_s - 1) > 0.1)
    if name == PLAIN.name:
        assert used.predicted_s == pytest.approx(plain_s)


@pytest.mark.parametrize(
    ("corrected_s", "name"), [(1.5, PLAN.name), (1.3, PLAIN.name), (1.7, PLAIN.name)]
)
def test_the_prediction_from_the_costs_of_its_turns_counts(corrected_s, name):
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    used = run(trial, plan_s=1.5, plain_s=2.0, corrected_s=corrected_s)
    assert used.name == name
    if name == PLAN.name:
        assert used.predicted_s == corrected_s


def test_predictions_are_corrected_after_each_turn_of_the_plan():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    corrected = []
    while trial.is_on:
        trial.add(1.0 + trial._turn % 2)
        if trial.is_due:
            corrected.append(trial.plan_to_correct is not None)
            layout = turn_over(trial, 0.8 + 0.1 * len(corrected))
    assert corrected == [True, False, True]
    assert layout.predicted_s == pytest.approx((0.9 + 1.1) / 2)


def taken(trial, *turns):
    """The layout that is adopted after each turn."""
    found = []
    for turn in turns:
        for seconds in turn:
            assert not trial.is_due
            trial.add(seconds)
        assert trial.is_due
        found.append(turn_over(trial))
    return [layout.name for layout in found]


def test_a_single_long_iteration_and_the_change_over_do_not_count():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    long, usual = (9.0, 1.0, 1.0, 5.0, 1.0), (9.0, 1.1, 1.1, 1.1, 1.1)
    found = taken(trial, long, usual, (9.0, *[1.0] * 4))
    assert found == [PLAIN.name, PLAN.name, PLAN.name]
    assert not trial.is_on


def test_a_machine_that_gets_slower_does_not_make_the_plan_faster():
    trial = Trial()
    trial.begin(PLAN, PLAIN, [0.7] * 4)
    turns = [[0.69] * 5, [1.0] * 5, [1.01] * 5]
    assert taken(trial, *turns)[-1] == PLAIN.name


def test_a_machine_that_gets_faster_does_not_make_the_plan_faster():
    trial = Trial()
    trial.begin(PLAN, PLAIN, [1.3] * 4)
    assert taken(trial, [1.05] * 5, [1.0] * 5)[-1] == PLAIN.name
    assert not trial.is_on


def test_a_few_long_iterations_of_plain_buckets_do_not_make_a_plan_faster():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    plain = [1.0, 1.0, 4.0, 1.0, 4.0]
    assert taken(trial, [1.1] * 5, plain, [1.1] * 5)[-1] == PLAIN.name
    assert not trial.is_on


@pytest.mark.parametrize("plain_s", [(), [0.9] * 9])
def test_a_plan_that_is_behind_is_given_up(plain_s):
    trial = Trial()
    trial.begin(PLAN, PLAIN, plain_s)
    used = taken(trial, [1.0] * 5)
    if not plain_s:
        assert trial.is_on
        used = taken(trial, [0.9] * 5)
    assert used == [PLAIN.name]
    assert not trial.is_on
    assert trial.has_rejected(PLAN)
    assert trial.verdict.endswith("took 900.0 ms: plain buckets are used")


def test_a_rank_follows_the_choice_of_rank_0_whatever_it_has_seen():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    taken(trial, [1.0] * 5)
    for seconds in [0.9] * 5:
        trial.add(seconds)
    assert trial.next()[0].is_plain
    trial.adopted(PLAN, is_over=False)
    assert trial.is_on


def test_a_plan_that_is_plain_is_not_tried():
    trial = Trial()
    trial.begin(replace(PLAIN, predicted_s=1.0, name="TAC"), PLAIN)
    assert not trial.is_on


def test_the_same_buckets_in_the_next_forward_are_tried():
    trial = Trial()
    trial.begin(replace(PLAIN, is_plain=False, name="TAC"), PLAIN)
    assert trial.is_on


def test_a_rejected_plan_may_come_again_on_other_links():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    run(trial, plan_s=1.0, plain_s=0.5)
    assert trial.has_rejected(PLAN)
    trial.forget()
    assert not trial.has_rejected(PLAN)
