# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.overlap._loop_state import LoopState, PlanPhase
from aikido_torch.overlap._retune import FIRST_ITERATIONS


def test_gradients_stay_local_in_nested_contexts():
    loop = LoopState()
    with loop.no_sync():
        with loop.no_sync():
            pass
        assert not loop.is_syncing
    assert loop.is_syncing


def test_a_backward_begins_once_and_only_if_its_gradients_are_summed():
    loop = LoopState()
    assert [loop.begins(7), loop.begins(7), loop.begins(8)] == [True, False, True]
    with loop.no_sync():
        assert not loop.begins(9)
    assert loop.begins(9)
    loop.is_closed = True
    assert not loop.begins(10)


def test_only_a_wait_in_an_own_step_needs_apply():
    loop = LoopState()
    with loop.catching_up():
        loop.on_wait()
    assert not loop.has_waited
    loop.on_wait()
    assert loop.has_waited
    with loop.catching_up():
        loop.on_wait()
    assert loop.has_waited


def test_a_replay_that_fails_ends():
    loop = LoopState()
    with pytest.raises(ValueError, match="apply"), loop.catching_up():
        raise ValueError("apply")
    assert not loop.is_catching_up


@pytest.mark.parametrize(
    ("plans", "skips", "answers", "may_ask"),
    [
        (True, False, ["order", "keep", "keep", "settle", "plan", "keep"], True),
        (True, True, ["order", "keep", "keep", "settle", "plan", "keep"], False),
        (False, False, ["order", "keep", "keep", "keep", "plan", "keep"], False),
    ],
)
def test_the_layout_changes_in_the_first_steps_and_when_a_rank_asks(
    plans, skips, answers, may_ask
):
    assert FIRST_ITERATIONS == 3
    phase = PlanPhase(plans=plans, skips=skips)
    assert not phase.may_ask
    asked = [False, False, False, False, True, False]
    assert [phase.on_step(is_asked=it) for it in asked] == answers
    assert phase.num_steps == 6
    assert phase.is_settled
    assert phase.tries == phase.may_ask == may_ask


def test_no_rank_asks_before_the_first_steps_are_over():
    phase = PlanPhase(plans=True, skips=False)
    assert [phase.on_step(is_asked=True) for _ in range(4)] == [
        *("order", "keep", "keep", "settle")
    ]
