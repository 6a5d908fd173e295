# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import sys

from aikido_torch.ddp._strict_calls import StrictCalls

ANY = sys.maxsize


def after_steps(*calls_per_step, is_behind=True):
    """The state after own steps with these numbers of calls."""
    strict, calls = StrictCalls(), 0
    for step, count in enumerate(calls_per_step):
        strict.on_top(step, calls)
        strict.end_top(step, calls)
        strict.on_hook(calls if is_behind else calls + count)
        calls += count
    strict.on_top(len(calls_per_step), calls)
    return strict


def test_a_loop_without_calls_has_no_limit():
    for strict in (StrictCalls(), after_steps(0, 0, 0)):
        for ahead in (0, 1):  # the others wait for it after the training
            assert strict.limit(moved=0, begun=0, ahead=ahead) == ANY
        assert strict.on_moved(moved=5, made=0) == 0


def test_a_rank_goes_up_to_the_step_before_whose_backward_others_wait():
    strict = after_steps(1, 1, 1, is_behind=False)
    assert strict.limit(moved=0, begun=0, ahead=1) == ANY
    assert strict.on_moved(moved=5, made=0) == 5


def test_a_rank_does_not_go_past_a_step_in_which_others_may_wait_for_it():
    for strict, ahead in ((after_steps(0, 1, 0), 1), (after_steps(2, 2, 2), 0)):
        assert strict.limit(moved=0, begun=0, ahead=ahead) == 0
        # One rank has begun the next step, but another rank may wait.
        assert strict.limit(moved=0, begun=1, ahead=ahead) == 0
        assert strict.limit(moved=0, begun=3, ahead=ahead) == 3
        assert strict.limit(moved=3, begun=0, ahead=ahead) == 0


def test_calls_are_free_once_all_others_were_in_time_behind_one_that_was_left_out():
    strict = after_steps(1, 1, 1)
    strict.note_in_time(1)
    assert not strict.are_free
    strict.note_in_time(2)
    assert strict.are_free
    assert strict.limit(moved=2, begun=0, ahead=3) == ANY
    assert strict.on_moved(moved=7, made=0) == 7
    # If an optimizer makes the calls, they are made in replayed steps too.
    assert strict.on_moved(moved=7, made=7) == 0


def test_calls_that_are_not_in_each_step_are_not_free():
    strict = after_steps(0, 0, 0, 1, 0, 0)
    strict.note_in_time(9)
    assert not strict.are_free
    assert strict.on_moved(moved=9, made=0) == 0


def test_a_rank_that_does_not_know_the_calls_of_a_step_yet_goes_past_none():
    for counts in ((1,), (1, 1), (0, 2), (3, 1, 1), (1, 2, 1)):
        for is_behind in (False, True):
            strict = after_steps(*counts, is_behind=is_behind)
            assert strict.limit(moved=0, begun=5, ahead=5) == 0, counts
    assert after_steps(0, 0).limit(moved=0, begun=5, ahead=5) == ANY


def test_the_calls_of_a_step_are_learnt_from_steps_in_a_row():
    assert after_steps(2, 2).per_step == 0
    assert after_steps(5, 2, 2, 2).per_step == 2
    assert after_steps(2, 2, 2, 3, 2).per_step == 2
    strict = StrictCalls()
    for calls in range(4):  # only each tenth step is an own step
        strict.on_top(10 * calls, calls)
        strict.on_moved(moved=9, made=0)
        strict.end_top(10 * calls + 9, calls)
    assert strict.per_step == 0


def test_meeting_steps_do_not_count():
    strict, calls = StrictCalls(), 0
    for step in range(8):
        strict.on_top(step, calls)
        strict.end_top(step, calls)
        strict.on_meeting()
        calls += 4
    assert strict.per_step == 0


def test_a_rank_goes_past_no_step_where_calls_and_buckets_share_a_group():
    for counts, limit in (
        ((), 0),
        ((0, 0), 0),
        ((0, 0, 0), ANY),
        ((0, 1, 0, 0, 0), ANY),  # calls of DistributedDataParallel itself
        ((1, 1, 1, 1), 0),
        ((0, 0, 0, 1), 0),
        ((0, 0, 0, 1, 0, 0, 0), 0),  # the same may happen in later steps
    ):
        for is_behind in (False, True):
            strict = after_steps(*counts, is_behind=is_behind)
            assert strict.limit_on_shared_group() == limit
    # At a step of `Handle.every` all ranks meet.
    strict = after_steps(0, 0, 0)
    strict.on_meeting()
    strict.end_top(3, 0)
    strict.on_top(4, 1)
    assert strict.limit_on_shared_group() == ANY
