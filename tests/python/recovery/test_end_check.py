# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Ranks in threads; tests/python/multiproc/test_repairs.py has real ranks."""

import logging
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from aikido_torch.errors import ConfigError, RanksDifferError
from aikido_torch.recovery._end_check import CallsInVain, EndCheck, end_check_of
from aikido_torch.recovery._state_check import StateCheck
from aikido_torch.recovery._state_transfer import Copied

STEPS = 60


class Backend:
    """The part of a group that an ending handle uses."""

    num_calls, place = 7, (0, 3)
    called_ahead = committed_ahead = 0

    def __init__(self):
        self.gone, self.hook = [], None

    def set_end_hook(self, hook):
        self.hook = hook


class StateTransfer:
    """StateTransfer between threads. A rank that is asked sends its state at once."""

    def __init__(self, number):
        self.number, self.ends, self.failure = number, [], None
        self.told, self.ranks = [], []

    @property
    def others(self):
        return [rank for rank in self.ranks if rank.number != self.number]

    def tell_end(self, number, step, digest):
        self.told.append((number, step, digest))
        for rank in self.others:
            rank.exchange.ends.append((number, self.number, step, digest))

    def take_ends(self, number):
        taken = [end[1:] for end in self.ends if end[0] == number]
        self.ends = [end for end in self.ends if end[0] > number]
        return taken

    def tell_failure(self, error, timeout_s):
        for rank in self.others:
            rank.exchange.failure = error

    def ask(self, rank, step):
        assert step == STEPS - 1
        donor = self.ranks[rank]
        copied = Copied(rank, STEPS, 7, donor) if donor.gives else None
        return SimpleNamespace(result=lambda *_, own_place: copied)

    def leave(self, fetch):
        pass

    def say_both(self, text):
        return text


class Rank:
    """A handle whose training has ended."""

    def __init__(self, number, size, check):
        self.net = nn.Linear(2, 2)
        with torch.no_grad():
            self.net.weight.fill_(1.0)
            self.net.bias.fill_(2.0)
        self.number, self.steps, self.gives = number, STEPS, True
        self.exchange, self._backend = StateTransfer(number), Backend()
        self.failed_on = []
        self._calls = SimpleNamespace(fail_on=lambda *to: self.failed_on.append(to))
        self._state = SimpleNamespace(
            read=lambda donor: {"notes": donor.check.digest_notes()}
        )
        self.check = StateCheck(
            self.net,
            torch.optim.SGD(self.net.parameters(), lr=0.1),
            lambda: self.exchange,
            place=(number, size),
            checking=(check, 100),
            first_step=2,
            reasons=(),
        )
        self.failure = None

    def _look(self):
        if self.exchange.failure is not None:
            raise self.exchange.failure

    def _answer(self):
        pass

    _refuse = _look

    def _adopt(self, copied):
        self.net.load_state_dict(copied.snapshot.net.state_dict())
        return self._state.read(copied.snapshot)

    def end(self, timeout_s):
        try:
            self.end_check.run(self, timeout_s)
        except RanksDifferError as error:
            self.failure = error

    def bits(self):
        return [p.tolist() for p in self.net.parameters()]


def make(size=3, check="warn"):
    ranks = [Rank(number, size, check) for number in range(size)]
    for rank in ranks:
        rank.exchange.ranks = ranks
        rank.end_check = EndCheck(rank.exchange, (rank.number, size), rank.check)
    return ranks


def end(ranks, timeout_s=20.0):
    threads = [threading.Thread(target=rank.end, args=(timeout_s,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def diverge(rank):
    with torch.no_grad():
        rank.net.bias[1] += 1


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "aikido")
    return lambda: caplog.messages


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_a_rank_that_differs_at_the_end_copies_from_the_majority(lines, odd):
    ranks = make()
    diverge(ranks[odd])
    end(ranks)
    assert ranks[0].bits() == ranks[1].bits() == ranks[2].bits()
    assert ranks[odd].bits()[1] == [2.0, 2.0]
    assert [rank.check.num_repairs for rank in ranks] == [
        int(rank.number == odd) for rank in ranks
    ]
    (line,) = lines()
    assert line.startswith(f"rank {odd} had another state than rank ")
    assert "before step 60. The first difference is in bias. Likely reason" in line
    assert line.endswith("was copied.")


def test_equal_ranks_say_nothing_and_compare_once(lines):
    ranks = make()
    end(ranks)
    end(ranks)
    assert lines() == []
    assert [len(rank.exchange.told) for rank in ranks] == [1, 1, 1]


def test_a_difference_may_be_an_error_on_all_ranks():
    ranks = make(check="error")
    diverge(ranks[1])
    end(ranks)
    for rank in ranks:
        assert rank.failure is ranks[1].failure
    failure = ranks[1].failure
    assert (failure.rank, failure.step, failure.tensor) == (1, STEPS, "bias")
    assert ranks[1].bits()[1] == [2.0, 3.0]


def test_a_rank_that_has_left_is_not_awaited(lines):
    ranks = make()
    ranks[0]._backend.gone = ranks[1]._backend.gone = [2]
    end(ranks[:2])
    assert lines() == []


def test_a_rank_that_does_not_come_is_awaited_until_the_deadline(lines):
    ranks = make()
    end(ranks[:2], timeout_s=0.05)
    assert sorted(lines()) == [
        f"rank {rank} waited 0.1 s for the end of the training on rank 2, whose last "
        "state is compared with none here."
        for rank in (0, 1)
    ]


def test_a_rank_that_could_copy_no_state_is_told_of_by_all(lines):
    ranks = make()
    diverge(ranks[2])
    ranks[0].gives = ranks[1].gives = False
    end(ranks, timeout_s=0.2)
    *by_others, by_itself = sorted(lines())
    assert by_others == [
        f"rank 2 ended its training with another state than rank {rank} after 60 "
        "steps, and copied none."
        for rank in (0, 1)
    ]
    assert by_itself.startswith("rank 2 had another state than rank 0, 1 before step")
    assert by_itself.endswith("so it has that state still.")


@pytest.mark.parametrize("check", ["warn", "error"])
def test_a_rank_with_fewer_steps_is_told(lines, check):
    ranks = make(check=check)
    ranks[1].steps = 57
    end(ranks, timeout_s=0.5)
    text = "rank 1 ends its training after 57 steps, but rank 0, 2 after 60: call "
    if check == "warn":
        (line,) = lines()
        assert line.startswith(text)
    else:
        assert str(ranks[1].failure).startswith(text)


def test_only_a_call_that_makes_no_progress_is_in_vain():
    in_vain = CallsInVain()
    assert not in_vain.are_seen(0, 0, 100.0)
    assert not in_vain.are_seen(0, 0, 200.0)  # no rank goes on
    for now in range(200, 210):  # the other ranks go on without this rank
        assert not in_vain.are_seen(now - 198, now - 199, float(now))
    assert not in_vain.are_seen(11, 11, 211.0)
    assert not in_vain.are_seen(11, 11, 300.0)  # the other ranks do not wait
    assert not in_vain.are_seen(12, 11, 301.0)
    assert not in_vain.are_seen(12, 11, 302.9)
    assert in_vain.are_seen(12, 11, 303.1)


@pytest.mark.parametrize("check", ["warn", "error"])
def test_a_rank_that_goes_on_is_told_of_and_not_awaited(lines, monkeypatch, check):
    monkeypatch.setattr("aikido_torch.recovery._end_check._IN_VAIN_S", 0.05)
    ranks = make(check=check)
    for rank in ranks[:2]:
        rank._backend.called_ahead = 1
    end(ranks[:2], timeout_s=60.0)
    texts = [
        f"rank {rank} ends its training after 60 steps, but rank 2 goes on and waits "
        "for others in the next step: give the loop the same number of steps on all "
        "ranks, counted by what catch_up() returns, and make one backward that "
        "reduces gradients in each."
        for rank in (0, 1)
    ]
    if check == "warn":
        assert sorted(lines()) == texts
        assert [rank.failed_on for rank in ranks[:2]] == [[([2], t)] for t in texts]
    else:
        assert any(str(rank.failure) in texts for rank in ranks[:2])


def test_most_ranks_may_go_on_without_one_that_has_ended(lines, monkeypatch):
    monkeypatch.setattr("aikido_torch.recovery._end_check._IN_VAIN_S", 0.05)
    ranks = make()
    ranks[1]._backend.called_ahead = 1
    end(ranks[1:2], timeout_s=60.0)
    (line,) = lines()
    assert line.startswith("rank 1 ends its training after 60 steps, but rank 0, 2 ")
    assert ranks[1].failed_on == []


def test_nothing_is_compared_if_that_is_off():
    ranks = make(check="off")
    end(ranks)
    assert [rank.exchange.told for rank in ranks] == [[], [], []]


class Handle:
    def __init__(self, error=None):
        self.error, self.closed = error, []

    def close(self, timeout_s):
        self.closed.append(timeout_s)
        if self.error:
            raise self.error


class Silent:
    """An exchange that records messages."""

    failure = None

    def __init__(self):
        self.ends = []

    def tell_end(self, number, step, digest):
        self.ends.append((step, digest))


def hook_of(handle):
    """The end hook of the group, and the messages so far."""
    handle._backend, exchange = Backend(), Silent()
    state_check = SimpleNamespace(failure=None)
    check = end_check_of(handle, exchange, state_check)
    assert check is not None
    return handle._backend.hook, exchange.ends


NOTHING = [(0, "")]


def test_a_group_that_ends_closes_the_handle():
    handle = Handle()
    hook, told = hook_of(handle)
    hook(timedelta(milliseconds=1500))
    assert handle.closed == [1.5]
    assert told == []


def test_a_handle_that_is_gone_compares_nothing():
    hook, told = hook_of(Handle())
    hook(timedelta(seconds=1))
    assert told == NOTHING


def test_no_rank_is_awaited_while_an_exception_is_on_its_way():
    handle = Handle()
    hook, told = hook_of(handle)
    try:
        raise ValueError("of the loop")
    except ValueError:
        hook(timedelta(seconds=1))
    assert (handle.closed, told) == ([], NOTHING)


def test_an_error_is_raised_once():
    ranks = make(check="error")
    assert not ranks[0].end_check.has_failed
    ranks[0].exchange.failure = RanksDifferError("of rank 1")
    assert not ranks[0].end_check.has_failed
    with pytest.raises(RanksDifferError):
        ranks[0]._look()
    assert ranks[0].end_check.has_failed
    ranks[0].close = pytest.fail
    check = end_check_of(ranks[0], ranks[0].exchange, ranks[0].check)
    assert check.has_failed
    ranks[0]._backend.hook(timedelta(seconds=1))
    assert ranks[0].exchange.told == [(1, 0, "")]


def test_only_a_difference_fails_the_end_of_a_group(lines):
    for error in (ConfigError("no"), ValueError("of apply()")):
        handle = Handle(error)
        hook, told = hook_of(handle)
        hook(timedelta(seconds=1))
        assert told == NOTHING
    assert lines()[1].endswith("end of the training: ValueError: of apply()")
    handle = Handle(RanksDifferError("rank 1"))
    hook, _ = hook_of(handle)
    with pytest.raises(RanksDifferError, match="rank 1"):
        hook(timedelta(seconds=1))


def test_an_abstention_is_told_to_all_others():
    ranks = make()
    ranks[0].end_check.abstain()
    assert ranks[0].exchange.told == [(1, 0, "")]
    end(ranks[1:])
