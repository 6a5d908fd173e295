# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""With fake handles; tests/python/multiproc/test_returns.py has ranks."""

from collections import deque
from datetime import timedelta
from types import SimpleNamespace

import pytest

from aikido_torch.ddp._return import return_by_copy
from aikido_torch.errors import ConfigError, PeerLostError, RetryLaterError


class Backend:
    """The part of a group that an excluded rank uses."""

    place, group_name, epoch = (1, 3), "fake", 1

    def __init__(self, timeout_s):
        self.call_timeout = timedelta(seconds=timeout_s)
        self.gone, self.standing = [], "refused"


class Handle:
    """The handle of rank 1 of three; the answers of other ranks are given."""

    def __init__(self, answers, standings, timeout_s=5.0):
        self.steps, self._copy, self._is_astray = 9, None, True
        self._own_steps_s = deque([0.01])
        self.answers, self.asked, self.adopted = list(answers), [], 0
        self._backend = Backend(timeout_s)
        self._calls = SimpleNamespace(num_waiting=0)
        self.standings = list(standings)

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
    handle = Handle([None, SimpleNamespace(rank=0)], ["returning"])
    assert return_by_copy(handle) == 0
    # The last step is invalid, so a state of the step before is requested.
    assert handle.asked == [(2, 8), (0, 8)]
    assert not handle._is_astray


@pytest.mark.parametrize("num_waiting", [0, 1])
def test_others_that_wait_for_this_rank_in_a_call_are_an_error(
    monkeypatch, num_waiting
):
    monkeypatch.setattr("aikido_torch.ddp._return._SURE_S", 0.0)
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
    handle = Handle([SimpleNamespace(rank=2)] * 20, ["refused"] * 20)
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
