# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import threading
from datetime import timedelta

import pytest
from torch.distributed import DistStoreError, HashStore

from aikido_torch import _C
from aikido_torch.errors import RetryLaterError
from aikido_torch.testing import late
from aikido_torch.trace.record._control import Control
from aikido_torch.trace.record._spans import unpack
from aikido_torch.trace.record._trace_store import Board, collect


@pytest.fixture
def listening():
    """Store and recorder of the only rank of a job, which listens for requests."""
    store, recorder = HashStore(), _C.Recorder(64)
    store.set_timeout(timedelta(seconds=1))
    control = Control(store, recorder, (0, 1), lambda: recorder.take()[0], look_s=0.001)
    yield store, recorder
    control.stop()
    assert not control._thread.is_alive()


def has_told(board, number):
    """True if the rank has answered; it may delete the answer during the read."""
    try:
        return bool(board.steps(number, [0]))
    except DistStoreError:
        return False


def run(recorder, steps):
    """Runs steps; each has a section if it is recorded."""
    for step in steps:
        recorder.set_step(step)
        if recorder.is_armed:
            recorder.section(0, 10, 20, step)
    recorder.set_step(steps[-1] + 1)


class Stepping(Board):
    """A requester's board that runs the training once the rank has answered."""

    def __init__(self, store, recorder, steps):
        super().__init__(store)
        self.recorder, self.left = recorder, steps

    def steps(self, number, ranks):
        heard = super().steps(number, ranks)
        if heard and self.left:
            run(self.recorder, self.left)
            self.left = []
        return heard


def test_only_the_requested_steps_are_traced(listening):
    store, recorder = listening
    board = Stepping(store, recorder, list(range(10)))
    found, notes, _ = collect(board, 3, 5, timeout_s=20)
    assert [span.step for span in unpack(found[0])] == [2, 3, 4, 5]
    assert notes == []
    assert not recorder.is_armed


def test_a_request_whose_steps_arrive_after_its_number_is_read(listening):
    class Slow(Stepping):
        def request(self, first, last):
            number = self._store.add("requests", 1)
            late(0.05)  # the rank polls during this time
            self._store.set(f"{number}/wanted", json.dumps([first, last]))
            return number

    store, recorder = listening
    board = Slow(store, recorder, list(range(10)))
    found, *_ = collect(board, 3, 5, timeout_s=20)
    assert [span.step for span in unpack(found[0])] == [2, 3, 4, 5]


def test_one_request_after_another_is_answered_with_its_own_steps(listening):
    store, recorder = listening
    for first in (3, 13, 23):
        board = Stepping(store, recorder, list(range(first - 3, first + 7)))
        found, *_ = collect(board, first, first + 1, timeout_s=20)
        assert [span.step for span in unpack(found[0])] == [first - 1, first, first + 1]


def test_a_rank_that_learns_late_gives_the_remaining_steps_and_says_so(listening):
    store, recorder = listening
    recorder.set_step(4)
    board = Stepping(store, recorder, list(range(4, 10)))
    found, notes, _ = collect(board, 3, 5, timeout_s=20)
    assert [span.step for span in unpack(found[0])] == [4, 5]
    assert notes == ["rank 0 was at step 4 when it heard: its trace begins there."]


def test_steps_in_the_past_are_an_error(listening):
    store, recorder = listening
    recorder.set_step(9)
    with pytest.raises(RetryLaterError, match=r"Steps 3 to 5 were over .* 9 to 9"):
        collect(Board(store), 3, 5, timeout_s=20)


def test_a_cancelled_request_leaves_the_rank_unchanged(listening):
    store, recorder = listening
    board = Board(store)
    number = board.request(50, 60)
    while not has_told(board, number):
        pass
    recorder.set_step(55)
    assert recorder.is_armed
    board.put_off(number)
    while recorder.is_armed:
        pass
    # Nothing of the request remains, and the rank listens again.
    while has_told(board, number):
        pass
    assert board.dump_of(number, 0) is None
    assert collect(Stepping(store, recorder, [56, 57]), 57, 57, timeout_s=20)[0]


def test_requests_from_before_a_rank_started_are_ignored():
    store, recorder = HashStore(), _C.Recorder(64)
    Board(store).request(0, 10)
    control = Control(store, recorder, (0, 1), lambda: b"", look_s=0.001)
    found, *_ = collect(Stepping(store, recorder, [11, 12]), 12, 12, timeout_s=20)
    assert found == {0: b""}
    assert Board(store).steps(1, [0]) == {}
    control.stop()


def test_a_lost_store_ends_the_thread_and_nothing_else():
    store, recorder = HashStore(), _C.Recorder(64)
    control = Control(store, recorder, (0, 1), lambda: b"", look_s=0.001)

    def dead():
        raise RuntimeError("Connection was likely closed")

    control._board.num_requests = dead
    control._thread.join(timeout=20)
    assert not control._thread.is_alive()
    control.stop()


def test_spans_that_a_user_records_are_left_alone():
    store, recorder = HashStore(), _C.Recorder(64)
    control = Control(store, recorder, (0, 1), lambda: None, look_s=0.001)
    recorder.section(0, 10, 20, 1)
    with pytest.raises(RetryLaterError, match="rank 0: it records by hand"):
        collect(Board(store), 3, 5, timeout_s=20)
    assert len(unpack(recorder.take()[0])) == 1
    assert not recorder.is_armed
    control.stop()


def test_a_user_who_starts_recording_during_a_request_keeps_the_spans():
    store, recorder = HashStore(), _C.Recorder(64)
    taken = iter([b"", None])
    control = Control(store, recorder, (0, 1), lambda: next(taken), look_s=0.001)
    with pytest.raises(RetryLaterError, match="rank 0: it records by hand"):
        collect(Stepping(store, recorder, list(range(10))), 3, 5, timeout_s=20)
    assert [span.step for span in unpack(recorder.take()[0])] == [2, 3, 4, 5]
    control.stop()


def test_a_second_requester_learns_that_the_rank_is_alive(listening):
    board = Board(listening[0])
    board.request(50, 60)
    second = board.request(70, 71)
    while not (told := board.steps(second, [0])):
        pass
    while board.steps(second, [0]) == told:
        pass
    for number in (1, second):
        board.put_off(number)


def test_the_end_of_the_group_ends_a_request_and_the_thread():
    store, recorder = HashStore(), _C.Recorder(64)
    ended = threading.Event()

    def take():
        assert not ended.is_set()  # its clock is gone
        return b""

    control = Control(
        store, recorder, (0, 1), take, has_ended=ended.is_set, look_s=0.001
    )
    board = Board(store)

    class Ending(Board):
        def steps(self, number, ranks):
            heard = super().steps(number, ranks)
            if heard:
                ended.set()
            return heard

    with pytest.raises(RetryLaterError, match="rank 0: it has left its group before"):
        collect(Ending(store), 3, 5, timeout_s=20)
    control._thread.join(timeout=20)
    assert not control._thread.is_alive()
    assert not recorder.is_armed
    assert board.dump_of(1, 0) is None
    control.stop()
