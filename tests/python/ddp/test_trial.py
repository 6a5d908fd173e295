# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ddp._layout import Layout
from aikido_torch.ddp._trial import Trial

PLAIN = Layout((("a", "b"),), (0,), name="plain buckets")
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
        (1.0, 1.0, PLAN.name),
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


def test_a_single_long_iteration_and_the_change_over_do_not_count():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    for taken in (9.0, 1.0, 1.0, 5.0, *[1.0] * 5):
        assert not trial.is_due
        trial.add(taken)
    trial.adopted(trial.next())
    for taken in (9.0, *[1.1] * 8):
        trial.add(taken)
    assert trial.next() is PLAN


def test_a_plan_that_is_plain_is_not_tried():
    trial = Trial()
    trial.begin(Layout(PLAIN.buckets, PLAIN.places, 1.0, name="TAC"), PLAIN)
    assert not trial.is_on


def test_a_rejected_plan_may_come_again_on_other_links():
    trial = Trial()
    trial.begin(PLAN, PLAIN)
    run(trial, plan_s=1.0, plain_s=0.5)
    assert trial.has_rejected(PLAN)
    trial.forget()
    assert not trial.has_rejected(PLAN)
