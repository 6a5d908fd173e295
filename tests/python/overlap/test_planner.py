# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch._backend import backend_of
from aikido_torch.errors import ConfigError
from aikido_torch.overlap import _planner
from aikido_torch.overlap._iteration import Iteration
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._planner import Planner

BYTES = {"a": 4000, "b": 4000}
KINDS = dict.fromkeys(BYTES, "float32")
FIRST = Layout((("b",), ("a",)), (1, 0))
PLAN = Layout((("b",), ("a",)), (0, 1), 0.02, name="TAC")
PLAIN = Layout((("b", "a"),), (0,), name="plain buckets", is_plain=True)


@pytest.fixture
def planner(group_of_one, monkeypatch):
    monkeypatch.setattr(_planner, "planned", lambda *_: PLAN)
    made = Planner(backend_of(None), None, BYTES, KINDS)
    run(made, 3, 0.03)
    return made


def run(planner, count, seconds, *, is_watched=True, sums=()):
    marks = (("a", 0.001), ("b", 0.002)) if is_watched else ()
    for _ in range(count):
        planner.retune.add(Iteration(marks, marks[::-1], 0.01, seconds), list(sums))


def tried(planner, layout, *, plain_s, plan_s=0.02):
    """The layout in use after the plan was compared with plain buckets."""
    while planner.retune.trial.is_on:
        run(planner, 5, plain_s if layout.is_plain else plan_s)
        layout = planner.next(layout)
    return layout


@pytest.mark.parametrize("plain_s", [0.01, 0.03])
def test_a_plan_is_adopted_and_tried_beside_plain_buckets(planner, plain_s):
    layout = planner.next(PLAIN)
    assert layout == PLAN
    layout = tried(planner, layout, plain_s=plain_s)
    assert layout.is_plain == (plain_s < 0.02)
    assert layout.buckets == ((("b", "a"),) if layout.is_plain else PLAN.buckets)


@pytest.mark.parametrize(("measured_s", "is_tried"), [(0.0208, False), (0.0212, True)])
def test_a_plan_that_promises_little_is_not_tried(planner, measured_s, is_tried):
    run(planner, 8, measured_s)
    layout = planner.next(PLAIN)
    assert planner.retune.trial.is_on == is_tried
    assert layout.is_plain != is_tried
    if not is_tried:
        assert layout.predicted_s == planner.retune.predicted_s == measured_s
        assert not planner.retune.wants_plan


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.25])
def test_a_plan_is_given_up_if_its_cost_was_wrong(planner, monkeypatch, factor):
    """An injected prediction that differs from the iteration by more than a tenth."""
    monkeypatch.setattr(_planner, "predict", lambda *_: factor * 0.02)
    layout = planner.next(PLAIN)
    while planner.retune.trial.is_on:
        sums = [(0.0, 0.001, 8000)]
        run(planner, 5, 0.03 if layout.is_plain else 0.02, sums=sums)
        layout = planner.next(layout)
    assert layout.is_plain == (factor != 1.0)
    if factor != 1.0:
        said = f"20.0 ms (predicted: {20 * factor:.1f} ms)"
        assert said in planner.retune.trial.verdict


def test_another_plan_has_to_be_better_than_the_present_one(planner, monkeypatch):
    monkeypatch.setattr(_planner, "predict", lambda *_: 0.0205)
    layout = planner.next(FIRST)
    assert layout.buckets == FIRST.buckets
    assert layout.predicted_s == 0.0205
    monkeypatch.setattr(_planner, "predict", lambda *_: 0.03)
    assert planner.next(FIRST) == PLAN


def test_a_rejected_plan_is_no_reason_to_plan_again(planner):
    layout = tried(planner, planner.next(PLAIN), plain_s=0.01)
    run(planner, 200, 0.01, is_watched=False)
    assert not planner.retune.wants_plan
    assert planner.next(layout).sends_as(layout)
    assert planner.retune.predicted_s == pytest.approx(0.01)


def test_a_model_without_a_plan_does_not_ask_again_and_again(planner, monkeypatch):
    def fail(*_):
        raise ConfigError("there is no such order")

    monkeypatch.setattr(_planner, "planned", fail)
    with pytest.warns(UserWarning, match="without a plan"):
        assert planner.next(PLAIN) is None
    run(planner, 200, 0.03)
    assert not planner.retune.wants_plan


@pytest.mark.parametrize("rejected_by", ["rank 0", "this rank"])
def test_rank_0_says_whether_a_plan_was_rejected(planner, monkeypatch, rejected_by):
    """Links may have changed on one rank only, but all ranks or none must begin a
    trial.
    """
    gather = _planner.gather

    def answered(value, group):
        (own,) = gather(value, group)
        is_answer = isinstance(own, tuple) and own[0] == PLAN
        keeps_s = 0.03 if rejected_by == "rank 0" else None
        return [(PLAN, keeps_s) if is_answer else own]

    if rejected_by == "this rank":
        tried(planner, planner.next(PLAIN), plain_s=0.01)
        run(planner, 8, 0.03)
    monkeypatch.setattr(_planner, "gather", answered)
    found = planner.next(PLAIN)
    assert found.is_plain == (rejected_by == "rank 0")
    assert planner.retune.trial.is_on == (rejected_by == "this rank")


def test_plans_behind_plain_buckets_are_of_what_was_watched_before(planner):
    tried(planner, planner.next(PLAIN), plain_s=0.01)
    run(planner, 50, 0.01, is_watched=False)
    assert planner.retune.measured_s == pytest.approx(0.01)
    assert planner.retune.iteration.ready


def test_transfers_are_tried_out_for_a_quarter_of_an_iteration_at_most(
    planner, monkeypatch
):
    within = []

    def probe(_, *, within_s):
        within.append(within_s)
        return [(4096.0, 0.001), (32768.0, 0.002)]

    monkeypatch.setattr(_planner, "probe", probe)
    planner.next(PLAIN)
    assert within == [pytest.approx(0.0075)]
