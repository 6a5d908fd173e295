# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Counts without ranks; tests/python/multiproc/test_loop_calls.py has ranks."""

import subprocess
import sys
import threading

from aikido_torch.ddp._call_watch import (
    CallWatch,
    CountNews,
    Counts,
    Place,
    Standstill,
    call_of,
)


def counts(*hooks):
    found = Counts()
    for step, calls in hooks:
        found.on_hook(step, calls)
    return found


def test_a_rank_lacks_a_call_once_it_has_begun_the_step_without_it():
    own = counts((4, 10), (5, 11), (9, 12))
    for step, calls, lacks in (
        (5, 11, None),
        (5, 12, 5),
        (6, 12, None),  # it has gone past step 6, and has made the call by step 9
        (6, 13, 9),
        (10, 99, None),  # it has not reached the step
        (3, 99, None),  # the step is older than its record
    ):
        assert own.lacks(Place(1, step, calls)) == lacks
    assert counts().lacks(Place(1, 0, 1)) is None


def test_the_calls_before_a_step_are_those_before_the_first_own_one_from_it_on():
    own = counts((4, 10), (9, 12))
    assert [own.by(step) for step in (3, 4, 5, 9, 10)] == [None, 10, 12, 12, None]
    own.add(2)
    assert [own.by(step) for step in (4, 9)] == [12, 14]


def test_a_number_of_calls_is_news_in_each_25th_step_and_after_a_change():
    news = CountNews()
    calls, due = 0, []
    for step in range(1, 61):
        if news.is_due(step, calls):
            due.append(step)
        calls += 2 + (step == 33)
    # 34 shows the unusual step, and 39 is the first one 5 steps later.
    assert due == [25, 34, 39, 50]


def test_the_same_number_of_calls_is_no_news():
    news = CountNews()
    assert [step for step in range(1, 80) if news.is_due(step, 3)] == [25]


def test_a_standstill_is_new_once_for_each_place():
    still = Standstill(0.0)
    looks = [
        ((4, 7), 0.5, False),
        ((4, 7), 1.4, False),
        ((4, 7), 1.5, True),
        ((4, 7), 9.0, False),
        ((5, 7), 9.1, False),
        ((5, 8), 10.2, False),  # a call is progress too
        ((5, 8), 11.2, True),
    ]
    for here, now, is_new in looks:
        assert still.is_new(here, now) == is_new, (here, now)


class _Group:
    """A backend of two ranks whose messages are not delivered."""

    def __init__(self, calls=0):
        self.num_calls, self.sent, self.left_out = calls, [], []
        self.place, self.group_name, self.epoch = (0, 2), "g", 1
        self.is_aborted = False

    def recv_anysource(self, tensors, tag):
        return self

    def send(self, tensors, rank, tag):
        self.sent.append(tensors[0].numpy().tobytes().rstrip(b"\0").decode())
        return self

    def is_completed(self):
        return False

    def leave_out_call(self, why, tells):
        self.num_calls += 1
        self.left_out.append((why, tells))

    def abort(self):
        self.is_aborted = True


def ended_watch(calls, buckets):
    """A watch whose thread has ended, so that the test runs its iterations."""
    has_ended = threading.Event()
    watch = CallWatch(calls, buckets, number=1, at_end=has_ended.set)
    assert not has_ended.is_set()
    watch.close()
    assert has_ended.wait(10.0)
    return watch


def test_the_process_stays_for_the_thread_that_ends_the_group():
    found = []
    has_ended = threading.Event()

    def at_end():
        found.append(threading.current_thread().daemon)
        has_ended.set()

    CallWatch(_Group(), _Group(), number=1, at_end=at_end).close()
    assert has_ended.wait(10.0)
    assert found == [False]


def test_a_rank_that_stands_still_tells_its_place_once():
    calls, buckets = _Group(7), _Group()
    watch = ended_watch(calls, buckets)
    watch.on_hook(3)
    for now in (0.0, 0.5, 0.9):
        watch._tell_if_still(now)
    assert buckets.sent == []
    for now in (1.0, 2.0, 9.0):
        watch._tell_if_still(now)
    assert len(buckets.sent) == 1
    assert buckets.sent[0].startswith('{"place": [0, 4, 7, ')


def test_a_call_that_this_rank_never_makes_fails_on_all_with_both_places():
    calls, buckets = _Group(6), _Group()
    watch = ended_watch(calls, buckets)
    watch._suspects[1] = (Place(1, 4, 7, "barrier at train.py:9"), 0.0)
    watch._judge(100.0)  # this rank has not begun step 4
    assert not watch.failure
    watch.on_hook(4)
    watch._judge(100.5)  # it may be about to make the call
    assert not watch.failure
    watch._judge(101.5)
    assert "barrier at train.py:9 on rank 1" in watch.failure
    assert "rank 0 has begun the backward of step 4" in watch.failure
    assert calls.left_out == [(watch.failure, True)]
    assert buckets.is_aborted


def told(*places):
    return [Place(rank, step, calls, "", False) for rank, step, calls in places]


def test_calls_that_others_had_made_before_a_step_are_missing():
    calls, buckets = _Group(10), _Group()
    watch = ended_watch(calls, buckets)
    watch.on_hook(25)
    watch.told = told((1, 25, 12), (1, 26, 99))
    assert watch.missing(26) == 2
    assert watch.told == told((1, 26, 99))  # this rank has not reached the step
    watch.on_repaired(2)
    watch.told = told((2, 25, 12))  # another rank reports the same later
    assert watch.missing(26) == 0


def test_a_rank_that_has_gone_past_a_step_lacks_its_calls_at_once():
    calls, buckets = _Group(10), _Group()
    watch = ended_watch(calls, buckets)
    watch.on_hook(8)
    watch.told = told((1, 11, 11), (0, 21, 12), (0, 31, 13))
    assert watch.missing(30) == 2
    calls.num_calls = 13  # two calls were skipped, and one was made
    watch.on_hook(32)
    assert watch.missing(33) == 0


def test_a_call_that_is_not_made_in_each_step_is_told_in_the_next_one():
    calls, buckets = _Group(7), _Group()
    watch = ended_watch(calls, buckets)
    seen = []
    for step in range(1, 34):
        watch.on_hook(step)
        if len(buckets.sent) > len(seen):
            seen.append(step)
            buckets.sent = buckets.sent[: len(seen)]
        calls.num_calls += step in (10, 20, 21, 22, 30)
    assert seen == [11, 21, 25, 31]


def test_calls_of_each_step_are_told_now_and_then():
    calls, buckets = _Group(7), _Group()
    watch = ended_watch(calls, buckets)
    for step in range(1, 60):
        watch.on_hook(step)
        calls.num_calls += 2
    assert len(buckets.sent) == 2  # in steps 25 and 50


def test_the_call_of_a_thread_is_found_with_its_line():
    assert call_of(threading.get_ident()) == ""


EXIT = """
import atexit, threading, weakref
from aikido_torch.ddp import _call_watch

def at_end():
    threading.Event().wait(0.3)
    print("at_end has ended")

class Watch:
    def __init__(self):
        self.ended = threading.Event()
        args = weakref.ref(self), self.ended, at_end
        self.thread = threading.Thread(target=_call_watch._run, args=args, daemon=True)
        self.thread.start()
        close = weakref.WeakMethod(self.close)
        atexit.register(_call_watch._close, close, self.thread)

    def look(self):
        return True

    def close(self):
        self.ended.set()

watch = Watch()
"""


def test_a_process_that_ends_without_closing_waits_for_what_is_done_at_the_end():
    told = subprocess.run([sys.executable, "-c", EXIT], capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "at_end has ended\n"), told.stderr
