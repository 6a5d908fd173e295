# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch._backend import backend_of
from aikido_torch.ddp import _planner
from aikido_torch.ddp._iteration import Iteration
from aikido_torch.ddp._layout import Layout
from aikido_torch.ddp._planner import Planner

BYTES = {"a": 4000, "b": 4000}
KINDS = dict.fromkeys(BYTES, "float32")
FIRST = Layout((("b",), ("a",)), (1, 0))
PLAN = Layout((("b",), ("a",)), (0, 1), 0.02, name="TAC")


@pytest.fixture
def planner(group_of_one, monkeypatch):
    monkeypatch.setattr(_planner, "planned", lambda *_: PLAN)
    made = Planner(backend_of(None), None, BYTES, KINDS)
    run(made, 3, 0.02)
    return made


def run(planner, count, seconds, *, is_watched=True):
    marks = (("a", 0.001), ("b", 0.002)) if is_watched else ()
    for _ in range(count):
        planner.retune.add(Iteration(marks, marks[::-1], 0.01, seconds), [])


def tried(planner, layout, *, plain_s):
    """What is used once the plan was tried beside plain buckets."""
    while planner.retune.trial.is_on:
        run(planner, 5, plain_s if layout.is_plain else 0.02)
        layout = planner.next(layout)
    return layout


@pytest.mark.parametrize("plain_s", [0.01, 0.03])
def test_a_plan_is_adopted_and_tried_beside_plain_buckets(planner, plain_s):
    layout = planner.next(FIRST)
    assert layout == PLAN
    layout = tried(planner, layout, plain_s=plain_s)
    assert layout.is_plain == (plain_s < 0.02)
    assert layout.buckets == ((("b", "a"),) if layout.is_plain else PLAN.buckets)


def test_a_rejected_plan_is_no_reason_to_plan_again(planner):
    layout = tried(planner, planner.next(FIRST), plain_s=0.01)
    run(planner, 200, 0.01, is_watched=False)
    assert not planner.retune.wants_plan
    assert planner.next(layout) is None
    assert planner.retune.predicted_s == pytest.approx(0.01)


@pytest.mark.parametrize("rejected_by", ["rank 0", "this rank"])
def test_rank_0_says_whether_a_plan_was_rejected(planner, monkeypatch, rejected_by):
    """The links may have changed on one of them: all have to begin a trial, or none."""
    gather = _planner.gather

    def answered(value, group):
        (own,) = gather(value, group)
        is_answer = isinstance(own, tuple) and own[0] == PLAN
        return [(PLAN, rejected_by == "rank 0") if is_answer else own]

    layout = planner.next(FIRST)
    if rejected_by == "this rank":
        layout = tried(planner, layout, plain_s=0.01)
    else:
        layout = tried(planner, layout, plain_s=0.03)
        layout = FIRST
    monkeypatch.setattr(_planner, "gather", answered)
    found = planner.next(layout)
    assert (found is None) == (rejected_by == "rank 0")
    assert planner.retune.trial.is_on == (rejected_by == "this rank")


def test_plans_behind_plain_buckets_are_of_what_was_watched_before(planner):
    tried(planner, planner.next(FIRST), plain_s=0.01)
    run(planner, 50, 0.01, is_watched=False)
    assert planner.retune.measured_s == pytest.approx(0.01)
    assert planner.retune.iteration.ready


def test_transfers_are_tried_out_for_half_an_iteration_at_most(planner, monkeypatch):
    within = []

    def probe(_, *, within_s):
        within.append(within_s)
        return [(4096.0, 0.001), (32768.0, 0.002)]

    monkeypatch.setattr(_planner, "probe", probe)
    planner.next(FIRST)
    assert within == [pytest.approx(0.01)]
