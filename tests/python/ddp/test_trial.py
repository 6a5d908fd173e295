# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from dataclasses import replace

import pytest

from aikido_torch.ddp._layout import Layout
from aikido_torch.ddp._trial import Trial

PLAIN = Layout((("a", "b"),), (0,), name="plain buckets", is_plain=True)
PLAN = Layout((("a",), ("b",)), (1, 0), 1.0, name="alone, by TAC")


def run(trial, *, plan_s, plain_s):
    """The layout that is used in the end."""
    used = PLAN
    while trial.is_on:
        trial.add(plain_s if used.sends_as(PLAIN) else plan_s)
        if trial.is_due:
            used = trial.next()
            trial.adopted(used)
    return used


@pytest.mark.parametrize(
    ("plan_s", "plain_s", "name"),
    [
        (1.0, 1.2, PLAN.name),
        (1.0, 0.9, PLAIN.name),
        # A plan that gains nothing is not worth its hooks.
        (1.0, 1.0, PLAIN.name),
        (1.0, 1.01, PLAIN.name),
        (1.0, 1.03, PLAN.name),
        # Worse than predicted by more than a tenth: it has to be clearly faster.
        (1.2, 1.21, PLAIN.name),
        (1.2, 1.3, PLAN.name),
    ],
)
def test_the_faster_of_plan_and_plain_buckets_is_used(plan_s, plain_s, name):
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    used = run(trial, plan_s=plan_s, plain_s=plain_s)
    assert used.name == name
    assert trial.has_rejected(PLAN) == (name == PLAIN.name)
    assert f"the plan took {1e3 * plan_s:.1f} ms" in trial.verdict
    if name == PLAIN.name:
        assert used.predicted_s == pytest.approx(plain_s)


def taken(trial, *turns):
    """What is adopted behind each turn."""
    found = []
    for turn in turns:
        for seconds in turn:
            assert not trial.is_due
            trial.add(seconds)
        assert trial.is_due
        found.append(trial.next())
        trial.adopted(found[-1])
    return [layout.name for layout in found]


def test_a_single_long_iteration_and_the_change_over_do_not_count():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    long, usual = (9.0, 1.0, 1.0, 5.0, 1.0), (9.0, 1.1, 1.1, 1.1, 1.1)
    found = taken(trial, long, usual, (9.0, *[1.0] * 4), usual)
    assert found == [PLAIN.name, PLAN.name, PLAIN.name, PLAN.name]
    assert not trial.is_on


def test_a_machine_that_gets_slower_makes_neither_side_worse():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    turns = [[1.0] * 5, [1.01] * 5, [2.0] * 5, [2.02] * 5]
    assert taken(trial, *turns)[-1] == PLAIN.name
    trial.forget()
    trial.begin(PLAN, PLAIN)
    turns = [[1.0] * 5, [1.1] * 5, [2.0] * 5, [2.2] * 5]
    assert taken(trial, *turns)[-1] == PLAN.name


def test_a_few_long_iterations_of_plain_buckets_do_not_make_a_plan_faster():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    plain = [1.0, 1.0, 4.0, 1.0, 4.0]
    assert taken(trial, [1.1] * 5, plain, [1.1] * 5, plain)[-1] == PLAIN.name


def test_rank_0_chooses_behind_each_turn_of_plain_buckets():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    seen = []
    for seconds in (1.0, 1.1, 1.0, 1.1):
        seen.append(trial.is_choice)
        taken(trial, [seconds] * 5)
    assert seen == [False, True, False, True]
    assert not trial.is_on


def test_a_plan_that_is_behind_at_half_time_is_given_up():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    assert taken(trial, [1.0] * 5, [0.9] * 5) == [PLAIN.name, PLAIN.name]
    assert not trial.is_on
    assert trial.has_rejected(PLAN)


def test_a_rank_follows_the_choice_of_rank_0_whatever_it_has_seen():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    taken(trial, [1.0] * 5)
    for seconds in [0.9] * 5:
        trial.add(seconds)
    assert trial.next().is_plain
    trial.adopted(PLAN)
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
