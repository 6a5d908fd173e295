# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Ranks in one process; tests/python/multiproc/test_repairs.py has real ranks."""

import logging
import sys

import pytest
import torch
from torch import nn

from aikido_torch.errors import RanksDifferError
from aikido_torch.recovery._state_check import StateCheck
from aikido_torch.recovery._state_transfer import Copied


class Fetch:
    """An answer that has arrived, if the rank answers."""

    def __init__(self, rank, step, copied):
        self.rank, self.step, self.copied = rank, step, copied

    def result(self, timeout_s, look, own_place):
        look()
        return self.copied


class StateTransfer:
    """StateTransfer that delivers to all others at once."""

    def __init__(self, number):
        self.number, self.others, self.digests = number, [], []
        self.answers, self.asked, self.failures = True, [], []

    def tell_digest(self, step, digest):
        for other in self.others:
            other.digests.append((self.number, step, digest))

    def take_digests(self):
        taken, self.digests = self.digests, []
        return taken

    def tell_failure(self, error, timeout_s):
        self.failures.append(error)

    def ask(self, rank, step, *, is_patient):
        assert is_patient
        self.asked.append(rank)
        copied = Copied(rank, step + 1, 7, None) if self.answers else None
        return Fetch(rank, step, copied)

    def leave(self, fetch):
        pass

    def say_both(self, text):
        return text


class Rank:
    def __init__(self, number, size, every=10, check="warn", reasons=()):
        self.net = nn.Linear(2, 2)
        with torch.no_grad():
            self.net.weight.fill_(1.0)
            self.net.bias.fill_(2.0)
        self.exchange = StateTransfer(number)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.check = StateCheck(
            self.net,
            self.optimizer,
            lambda: self.exchange,
            place=(number, size),
            checking=(check, every),
            first_step=2,
            reasons=reasons,
        )
        self.size, self.number, self.looked = size, number, 0
        self.notes, self.adopted = {}, 0

    def digest(self, step, *, is_replay=False):
        if is_replay:
            self.check.on_replay(step)
        else:
            self.check.begin(step)
            self.check._send()  # called at the end of a backward

    def look(self):
        self.looked += 1

    def adopt(self, copied):
        self.adopted += 1
        return {"notes": self.notes}

    def at(self, step, most_steps=sys.maxsize):
        others = [rank for rank in range(self.size) if rank != self.number]
        return self.check.at_boundary(
            (step, 7),
            lambda: others,
            1.0,
            most_steps=most_steps,
            look=self.look,
            adopt=self.adopt,
            read=lambda copied: {"notes": self.notes},
        )


def make(size=3, **options):
    ranks = [Rank(number, size, **options) for number in range(size)]
    for rank in ranks:
        rank.exchange.others = [r.exchange for r in ranks if r is not rank]
    return ranks


def diverge(rank):
    with torch.no_grad():
        rank.net.bias[1] += 1


def test_digests_are_taken_of_the_same_steps_by_all(caplog):
    (rank,) = make(1, every=100)
    assert [step for step in range(400) if rank.check.is_due(step)] == [
        95,
        190,
        285,
        380,
    ]
    (rank,) = make(1, every=4)
    assert [step for step in range(13) if rank.check.is_due(step)] == [4, 8, 12]


@pytest.mark.parametrize("is_replay", [False, True])
def test_a_rank_that_differs_copies_from_the_majority_one_step_later(caplog, is_replay):
    caplog.set_level(logging.WARNING, "aikido")
    ranks = make(reasons=["changed gradients"])
    diverge(ranks[1])
    for rank in ranks:
        rank.digest(10, is_replay=is_replay and rank is ranks[1])
    ranks[1].notes = ranks[0].check.digest_notes()
    assert [rank.at(11) for rank in ranks] == [None] * 3
    assert [len(rank.exchange.asked) for rank in ranks] == [0, 1, 0]
    # The loop omitted a step, so this rank has not reached the next one.
    assert ranks[1].at(11) is None
    assert [rank.at(12) for rank in ranks] == [None, 0, None]
    assert ranks[1].looked == 1
    (line,) = caplog.messages
    assert line.startswith(
        "rank 1 had another state than rank 0, 2 before step 10. The first difference "
        "is in bias. Likely reason: since step 0 this rank has replayed "
    )
    assert line.endswith("The state of rank 0 was copied at step 12.")
    assert ("replayed nothing" in line) == (not is_replay)
    assert "(changed gradients)" in line
    assert ranks[1].check.num_repairs == 1
    # Digests from before the repair that arrive later cause no further repair.
    assert ranks[1].at(13) is None


def test_without_an_answer_another_rank_is_asked(caplog):
    caplog.set_level(logging.WARNING, "aikido")
    ranks = make()
    diverge(ranks[2])
    for rank in ranks:
        rank.digest(10)
    ranks[2].exchange.answers = False
    assert [ranks[2].at(step) for step in (11, 12, 13)] == [None] * 3
    assert ranks[2].exchange.asked == [0, 1, 0]
    assert "rank 0 has given no state within 1.0 s" in caplog.messages[0]


def test_a_state_with_too_many_steps_is_asked_for_again(caplog):
    ranks = make()
    diverge(ranks[1])
    for rank in ranks:
        rank.digest(10)
    # The answers are one step ahead of the request.
    assert [ranks[1].at(step, most_steps=11) for step in (11, 12)] == [None, None]
    assert (ranks[1].adopted, caplog.messages) == (0, [])
    assert ranks[1].exchange.asked == [0, 2]
    assert ranks[1].at(13, most_steps=13) == 2
    assert ranks[1].adopted == 1


@pytest.mark.parametrize("answers", [True, False])
def test_an_error_is_raised_one_step_after_the_others_have_heard_of_it(answers):
    ranks = make(check="error")
    diverge(ranks[0])
    for rank in ranks:
        rank.digest(10)
    ranks[0].notes = ranks[1].check.digest_notes()
    ranks[0].exchange.answers = answers
    assert [ranks[0].at(step) for step in (11, 12)] == [None, None]
    (told,) = ranks[0].exchange.failures
    with pytest.raises(
        RanksDifferError, match="rank 0 had another state than rank 1, 2"
    ) as raised:
        ranks[0].at(13)
    assert raised.value is told
    assert (told.rank, told.step) == (0, 10)
    assert told.tensor == ("bias" if answers else None)
    assert ("The first difference is in bias." in str(told)) == answers
    assert ranks[0].adopted == 0
    assert ranks[1].at(11) is None


def test_nothing_is_compared_if_that_is_off():
    ranks = make(check="off")
    assert not ranks[0].check.is_due(10)
    assert ranks[0].at(11) is None


def test_a_refused_rank_sends_no_digest():
    ranks = make()
    diverge(ranks[2])
    ranks[2].check.is_void = True
    for rank in ranks:
        rank.digest(10)
    assert [number for number, _, _ in ranks[0].exchange.digests] == [1]
    assert ranks[2].at(11) is None
    assert ranks[2].exchange.asked == []


def test_a_rank_that_returned_with_a_state_needs_no_repair_of_the_state_before():
    ranks = make()
    diverge(ranks[2])
    for rank in ranks:
        rank.digest(10)
    assert ranks[2].at(11) is None
    assert ranks[2].exchange.asked != []  # a state is on its way
    ranks[2].check.on_return(14)
    assert ranks[2].at(15) is None
    assert (ranks[2].adopted, ranks[2].check.num_repairs) == (0, 0)
    assert not ranks[2].check.has_work
