# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Judgement of the overhead of tracing; the benchmark measures it."""

import pytest

from aikido_torch._backend import recorder_of_process
from aikido_torch.trace.record import _record, _spans
from benchmarks.tracing_cases import overhead


def times(without, watched):
    return {"without": without, "watched": watched}


def test_the_ratio_is_of_neighbours_and_of_all_ranks():
    # The machine becomes half as fast meanwhile; rank 1 waits for rank 0.
    ranks = [
        times([1.0, 1.0, 2.0], [1.2, 1.2, 2.4]),
        times([3.0, 3.0, 6.0], [3.2, 3.2, 6.4]),
    ]
    assert overhead.ratio_of(ranks, "watched") == (pytest.approx(1.1), 0.0)


def test_one_step_that_is_late_does_not_count():
    ranks = [times([1.0] * 9, [1.1] * 8 + [50.0])]
    assert overhead.ratio_of(ranks, "watched")[0] == pytest.approx(1.1)


def test_chance_is_less_the_more_turns_there_are():
    def chance(turns):
        return overhead.ratio_of(
            [times([1.0, 1.0] * turns, [1.0, 1.2] * turns)], "watched"
        )

    assert chance(100) == (
        pytest.approx(1.1),
        pytest.approx(0.1 / 0.6745 * 0.0886, 1e-3),
    )
    assert chance(400)[1] == pytest.approx(chance(100)[1] / 2)


def test_each_arm_comes_once_a_turn_in_an_order_that_changes():
    turns = list(overhead.turns_of(200))
    assert all(sorted(arms) == sorted(overhead.ARMS) for arms in turns)
    firsts = [arms[0] for arms in turns]
    assert all(30 <= firsts.count(arm) <= 70 for arm in overhead.ARMS)
    assert turns == list(overhead.turns_of(200))


def test_what_threads_take_is_added():
    seen = [
        overhead.Seen({}, {}, {"without": 0.001, "watched": 0.002, "traced": used})
        for used in (0.005, 0.011)
    ]
    shares = overhead.shares_of(seen)
    assert shares == {"watched": pytest.approx(0.001), "traced": pytest.approx(0.007)}
    ranks = [{arm: [0.01, 0.01] for arm in overhead.ARMS}]
    again, watched, traced = overhead.judge("time", ranks, shares)
    assert (again.ratio, again.holds) == (pytest.approx(1.0), None)
    assert (watched.ratio, watched.holds) == (pytest.approx(1.001), True)
    assert (traced.value, traced.holds) == (pytest.approx(10.07), True)
    slow = overhead.judge("time", ranks, {"watched": 0.006, "traced": 0.031})
    assert [result.holds for result in slow] == [None, False, False]


@pytest.mark.parametrize(
    ("arm", "hooks", "parts"),
    [("without", 0, 0), ("watched", 1, 0), ("traced", 1, 3)],
)
def test_an_arm_is_what_it_says(group_of_one, arm, hooks, parts):
    training = overhead.Training()
    recorder = recorder_of_process()
    with training.traced(arm, listens=False):
        assert len(training.optimizer._optimizer_step_post_hooks) == hooks
        training.step()
        taken = _record.take()
        sections = [span for span in taken.spans if span.kind == _spans.Kind.SECTION]
        assert len({span.name for span in sections} - {"wait"}) == parts
    assert not training.optimizer._optimizer_step_post_hooks
    assert not recorder.is_armed
