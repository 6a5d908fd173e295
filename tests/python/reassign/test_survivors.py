# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import logging

import pytest

from aikido_torch.reassign._log import AssignmentLog, StepRecord
from aikido_torch.reassign._pending import PendingItems
from aikido_torch.reassign._plan import Plan
from aikido_torch.reassign._survivors import Survivors

SIZE = 3
DEAD = 2
PLAN = Plan(
    num_samples=60,
    batch_size=6,
    micro_batch_size=1,
    num_ranks=SIZE,
    shuffle=False,
    seed=0,
    drop_last=True,
)


class Training:
    """Rank of a group without a model."""

    def __init__(self, rank, outcomes):
        self.place = (rank, SIZE)
        self.outcomes = outcomes  # contributors of each step
        self.gone_now = ([], 0)
        self.told = {}  # by dead rank and other rank
        self.sent = []

    def contributors(self, step):
        return self.outcomes.get(step, range(SIZE))

    def gone(self):
        return self.gone_now

    def tell_of(self, dead, ranks, numbers):
        self.sent.append((dead, ranks, numbers))

    def told_of(self, dead, rank):
        return self.told.get((dead, rank))


class Loop:
    """Steps of one rank. Rank 2 contributes to step 2 last."""

    def __init__(self, rank=0, steps=4):
        without = (0, 1)
        self.training = Training(rank, dict.fromkeys(range(3, 20), without))
        self.log = AssignmentLog()
        self.pending = PendingItems(reissues=True)
        self.survivors = Survivors(self.training, PLAN, self.log, self.pending)
        self.own = [self.survivors.begin_step(step, 0, step) for step in range(steps)]

    def take(self, step, label, *, has_counted):
        record = StepRecord(begun=(), computed=[(DEAD, label)], knew_last=True)
        self.log.add(step, record)
        self.log.on_outcome(step, has_counted=has_counted)

    def top(self, now):
        """The top of a step. Returns the items that the rank issues again."""
        before = len(self.pending)
        self.survivors.on_outcome(self.training.contributors(now - 1))
        self.survivors.on_top(now)
        return self.pending.labels[before:]


def test_a_rank_that_is_only_late_is_left_alone():
    loop = Loop()
    assert loop.top(4) == []
    assert loop.training.sent == []
    assert loop.own[3] == [18, 19]


def test_the_items_of_a_dead_rank_are_divided_when_all_facts_are_here():
    loop = Loop()
    loop.take(2, 16, has_counted=False)
    loop.take(3, 22, has_counted=True)
    loop.training.gone_now = ([DEAD], 4)
    assert loop.top(4) == []
    numbers = [2, 2, 2, 16, 0, 3, 22, 1]
    assert loop.training.sent == [(DEAD, [1], numbers)]
    assert loop.survivors.begin_step(4, 0, 4) == [24, 25]  # rank 1 has not told yet
    loop.training.told[DEAD, 1] = [2, 0]
    # Items 22 and 23 of step 3, 28 and 29 of step 4: the first of each is of rank 0.
    assert loop.top(5) == [16, 28]
    assert loop.survivors.begin_step(5, 0, 5) == [30, 31, 34]
    assert loop.top(6) == []
    assert len(loop.training.sent) == 1


def test_a_call_of_a_gone_rank_may_still_count():
    """Another rank has begun step 4, so the dead rank may have contributed to it."""
    loop = Loop()
    loop.training.gone_now = ([DEAD], 5)
    loop.training.told[DEAD, 1] = [2, 0]
    assert loop.top(4) == []
    assert loop.training.sent == []
    loop.survivors.begin_step(4, 0, 4)
    loop.training.gone_now = ([DEAD], 6)
    assert loop.top(5) == [22, 28]


def test_a_failed_take_of_a_later_step_is_in_the_list_of_the_plan():
    loop = Loop()
    loop.take(3, 22, has_counted=False)
    loop.training.gone_now = ([DEAD], 4)
    loop.training.told[DEAD, 1] = [2, 0]
    assert loop.top(4) == [22]
    assert loop.training.sent == [(DEAD, [1], [2, 0])]


def test_an_outcome_that_is_not_known_says_nothing():
    loop = Loop()
    loop.training.gone_now = ([DEAD], 4)
    loop.training.outcomes[3] = None  # a copied state has the step
    assert loop.top(4) == []
    assert loop.training.sent == []
    loop.survivors.begin_step(4, 0, 4)
    loop.top(5)
    assert loop.training.sent == [(DEAD, [1], [2, 0])]


@pytest.mark.parametrize("has_told", [False, True])
def test_a_second_death_before_all_facts_are_here(has_told, caplog):
    loop = Loop()
    loop.training.gone_now = ([DEAD], 4)
    loop.top(4)
    loop.survivors.begin_step(4, 0, 4)
    loop.training.gone_now = ([1, DEAD], 5)
    if has_told:
        loop.training.told[DEAD, 1] = [2, 0]
    with caplog.at_level(logging.INFO, "aikido"):
        found = loop.top(5)
    if has_told:
        assert found == [22, 28]
        assert "rank 2 died. 2 other ranks compute its micro-batches" in caplog.text
    else:
        assert found == []
        assert "rank 2 died, and rank 1 soon after it" in caplog.text


def test_a_rank_without_any_contribution():
    loop = Loop(steps=0)
    loop.training.outcomes = dict.fromkeys(range(3), (0, 1))
    loop.training.gone_now = ([DEAD], 2)
    loop.training.told[DEAD, 1] = [-1, 0]
    loop.survivors.begin_step(0, 0, 0)
    loop.survivors.begin_step(1, 0, 1)
    assert loop.top(2) == [4, 10]
