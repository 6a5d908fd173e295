# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""With fake handles; tests/python/multiproc/test_returns.py has ranks."""

from collections import deque
from datetime import timedelta
from types import SimpleNamespace

import pytest

from aikido_torch.errors import ConfigError, PeerLostError, RetryLaterError
from aikido_torch.recovery import _return
from aikido_torch.recovery._return import (
    may_return,
    rescue,
    return_by_copy,
    wait_for_excluded,
)
from harness.layered_models import ManualClock


class Backend:
    """The part of a group that an excluded rank uses."""

    place, group_name, epoch = (1, 3), "fake", 1

    def __init__(self, timeout_s):
        self.call_timeout = timedelta(seconds=timeout_s)
        self.gone, self.standing = [], "refused"
        self.in_view = [[0, 2], [0, 1, 2]]

    def members(self):
        return self.in_view.pop(0) if len(self.in_view) > 1 else self.in_view[0]


class Handle:
    """The handle of rank 1 of three; the answers of other ranks are given."""

    def __init__(self, answers, standings, timeout_s=5.0):
        self.steps, self._copy, self._has_lost_step = 9, None, True
        self._book = SimpleNamespace(own_steps_s=deque([0.01]))
        self.answers, self.asked, self.adopted = list(answers), [], 0
        self._backend = Backend(timeout_s)
        self._calls = SimpleNamespace(num_waiting=0)
        self._state_check = SimpleNamespace(is_void=True, on_return=self.on_return)
        self.standings = list(standings)

    def on_return(self, step):
        self.returned_at = step

    def _candidates(self):
        return [2, 0]

    def _ask(self, rank, step, timeout_s):
        self.asked.append((rank, step))
        return self.answers.pop(0) if self.answers else None

    def _adopt(self, copied):
        self.adopted += 1
        self._backend.standing = self.standings.pop(0)
        return {}

    def _refuse(self):
        self._backend.standing = "member"


def test_a_rank_copies_from_the_first_that_answers_and_waits_to_be_taken_in():
    handle = Handle([None, SimpleNamespace(rank=0, step=9)], ["returning"])
    assert return_by_copy(handle) == 0
    assert handle.returned_at == 9
    # The last step is invalid, so a state of the step before is requested.
    assert handle.asked == [(2, 8), (0, 8)]
    assert not handle._has_lost_step


@pytest.mark.parametrize("num_waiting", [0, 1])
def test_others_that_wait_for_this_rank_in_a_call_are_an_error(
    monkeypatch, num_waiting
):
    monkeypatch.setattr("aikido_torch.recovery._return._SURE_S", 0.0)
    handle = Handle([], [], timeout_s=0.05)
    refused = []

    def refuse(text):
        refused.append(text)
        raise ConfigError(text)

    handle._calls = SimpleNamespace(num_waiting=num_waiting, refuse_waiting=refuse)
    with pytest.raises(ConfigError if num_waiting else RetryLaterError):
        return_by_copy(handle)
    assert [text.partition(" was left")[0] for text in refused] == [
        "catch_up: rank 1"
    ] * num_waiting


def test_a_rank_that_is_refused_again_and_again_gives_up():
    handle = Handle([SimpleNamespace(rank=2, step=9)] * 20, ["refused"] * 20)
    with pytest.raises(PeerLostError, match="was refused each time"):
        return_by_copy(handle)
    assert handle.adopted == 8


def test_a_rank_that_nobody_answers_ends_at_the_time_out_of_calls():
    handle = Handle([], [], timeout_s=0.05)
    with pytest.raises(RetryLaterError, match="no rank gave its state within 0 s"):
        return_by_copy(handle)


def test_a_rank_that_is_alone_ends_at_once():
    handle = Handle([], [])
    handle._backend.gone = [0, 2]
    with pytest.raises(PeerLostError, match="all 2 others have left or are lost"):
        return_by_copy(handle)


class Refused:
    """A handle whose call has failed."""

    def __init__(self, copy="a rule", exchange="an exchange"):
        self._copy, self._exchange, self._end_check = copy, exchange, None
        self._has_lost_step, self.alarms = False, []
        self._calls = SimpleNamespace(has_failed=False)
        self._backend = Backend(5.0)
        self._state_check = SimpleNamespace(is_void=False)
        self._quiet = SimpleNamespace(set_alarm=self.alarms.append)


OWN = PeerLostError("rank 1 was left out", rank=1)


def test_a_refused_rank_loses_its_step_and_says_so_once(caplog):
    handle = Refused()
    for _ in range(2):  # buckets
        assert rescue(lambda: handle, OWN)
    assert handle._has_lost_step
    assert handle._state_check.is_void
    assert handle.alarms[-1] is True
    (record,) = caplog.records
    assert record.message == (
        "The step of this rank is lost, and catch_up() copies the state of another "
        "rank: rank 1 was left out"
    )


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (Refused(), PeerLostError("rank 2 is lost", rank=2)),
        (Refused(), ConfigError("calls differ")),
        (Refused(copy=None), OWN),
        (Refused(exchange=None), OWN),
    ],
)
def test_the_call_of_a_rank_that_cannot_return_raises(handle, error):
    assert not rescue(lambda: handle, error)
    assert not handle._has_lost_step


def test_a_call_of_a_model_that_is_gone_or_has_failed_otherwise():
    assert not rescue(lambda: None, OWN)
    handle = Refused(copy=None)
    handle._calls.has_failed = True
    assert rescue(lambda: handle, OWN)  # the end of the backward raises the reason
    assert not handle._has_lost_step


@pytest.mark.parametrize("is_over", [False, True])
def test_a_rank_returns_if_no_other_model_is_trained(monkeypatch, is_over):
    handle, other = Refused(), Refused()
    other._end_check = SimpleNamespace(is_behind=lambda _: is_over)
    monkeypatch.setattr(
        _return, "stepped_together", SimpleNamespace(handles=lambda: [other, handle])
    )
    assert may_return(handle) == is_over


class Meeting(Refused):
    """A handle of a loop that is about to make calls of its own."""

    def __init__(self, must_copy=False):
        super().__init__()
        self.must_copy, self.num_answers, self.num_catch_ups = must_copy, 0, 0

    def _must_copy(self):
        return self.must_copy

    def catch_up(self):
        self.must_copy, self.num_catch_ups = False, self.num_catch_ups + 1

    def _look(self):
        pass

    def _answer(self):
        self.num_answers += 1


@pytest.mark.parametrize("way", ["returns", "gone", "away"])
def test_others_give_states_before_a_meeting_until_all_are_back(monkeypatch, way):
    clock = ManualClock()
    monkeypatch.setattr(
        _return, "time", SimpleNamespace(monotonic=clock, sleep=clock.spend)
    )
    monkeypatch.setattr(_return, "option_of", lambda *_: 20)
    handle = Meeting()
    handle._backend.place = (0, 3)
    handle._backend.in_view = [[0, 2], [0, 1, 2]] if way == "returns" else [[0, 2]]
    handle._backend.gone = [1] if way == "gone" else []
    wait_for_excluded(handle)
    # It gives up at the time-out of heartbeats, and looks each millisecond until then.
    looks = pytest.approx(20, abs=1)
    assert handle.num_answers == {"returns": 1, "gone": 0, "away": looks}[way]


def test_a_refused_rank_copies_a_state_before_a_meeting(monkeypatch):
    monkeypatch.setattr(_return, "option_of", lambda *_: 5000)
    handle = Meeting(must_copy=True)
    handle._backend.in_view = [[0, 1, 2]]
    wait_for_excluded(handle)
    assert (handle.num_catch_ups, handle.num_answers) == (1, 0)
