# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Exactly once with ranks that die, or that copy the state of another rank."""

import random
import time
from collections import Counter

import pytest
import torch.distributed as dist

import aikido_torch
from aikido_torch.ddp import StateCopy
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import die, late, run_ranks
from harness.counted_items import CountedTraining

SIZE = 4
EPOCHS = 4
NUM_SAMPLES = 192
SLOW = 1
SLOW_S, FAST_S = 0.015, 0.003
SEEDS = 50
NEXT_STEP_S = 1.0
SKIP = SkipStraggler(min_contributors=2, floor_ms=200, ceiling_ms=200)
LOADER = {"batch_size": 48, "shuffle": False}


class Death:
    """Kills a fast rank within a block of micro-batches that it has taken over."""

    def __init__(self, rank, seed):
        rng = random.Random(seed)
        self.victim = rng.choice([r for r in range(SIZE) if r != SLOW])
        self._first_step, self._at = rng.randint(4, 9), rng.randint(1, 3)
        self._is_here = rank == self.victim
        self._num_taken = 0

    def look(self, step, micro_batch):
        if self._is_here and step >= self._first_step and micro_batch.is_taken:
            self._num_taken += 1
            if self._num_taken == self._at:
                die()


def lose_a_rank(rank, size, seed, reconfigures=False):
    handles = [""] * size
    dist.all_gather_object(handles, aikido_torch.reconfigure_handle())
    training = CountedTraining(NUM_SAMPLES, SKIP, **LOADER)
    death = Death(rank, seed)
    longest = 0.0
    for epoch in range(EPOCHS):
        if reconfigures and epoch == EPOCHS - 1:
            del handles[death.victim]
            aikido_torch.reconfigure(1, handles)
        begin = time.monotonic()
        for step in training.steps:
            for micro_batch in step:
                late(SLOW_S if rank == SLOW else FAST_S)
                death.look(step.number, micro_batch)
                training.backward(micro_batch)
            training.update()
            longest = max(longest, time.monotonic() - begin)
            begin = time.monotonic()
    return *training.found(), longest


def check_deaths(seeds, *arguments):
    """Runs a training for each seed. Returns the longest step of each."""
    longest = {}
    for seed in seeds:
        victim = Death(0, seed).victim
        results = run_ranks(SIZE, lose_a_rank, seed, *arguments, may_die={victim})
        assert results[victim] is None, f"seed {seed}: rank {victim} took nothing"
        survivors = [result for result in results if result is not None]
        counts = survivors[0][0]
        assert all(other[0] == counts for other in survivors), seed
        pending = Counter(i for _, each, *_ in survivors for i in each)
        totals = {count + pending[i] for i, count in enumerate(counts)}
        assert totals == {EPOCHS}, (seed, counts, pending)
        assert all(dropped == 0 for _, _, dropped, _ in survivors), seed
        longest[seed] = max(seconds for *_, seconds in survivors)
    return longest


def test_no_item_is_lost_or_doubled_if_a_helper_is_killed():
    check_deaths(range(3))


def test_reconfigure_after_a_death_loses_and_doubles_no_item():
    check_deaths([0], True)


@pytest.mark.slow
def test_no_item_is_lost_or_doubled_in_many_deaths():
    longest = check_deaths(range(SEEDS))
    assert max(longest.values()) < NEXT_STEP_S, longest


@pytest.mark.alone
def test_the_step_after_a_death_comes_within_a_second():
    longest = check_deaths([SEEDS])
    assert max(longest.values()) < NEXT_STEP_S, longest


# ---- a rank that copies the state of another rank ----

BEHIND = 2


def copy_the_state(rank, size):
    """A rank that is late for many steps copies the state, more than once."""
    policy = SkipStraggler(min_contributors=2, floor_ms=30, ceiling_ms=30)
    options = {"copy": StateCopy(when="always", timeout_ms=700)}
    training = CountedTraining(NUM_SAMPLES, policy, options=options, **LOADER)
    for _ in range(EPOCHS):
        for step in training.steps:
            if rank == BEHIND and step.number in (5, 9):
                late(0.5)
            for micro_batch in step:
                late(FAST_S)
                training.backward(micro_batch)
            training.update()
    training.handle.close()
    return *training.found(), training.handle.copied_steps


def test_a_rank_that_copied_a_state_goes_on_with_the_right_items():
    results = run_ranks(SIZE, copy_the_state)
    assert results[BEHIND][-1] > 1
    counts = results[0][0]
    assert all(other[0] == counts for other in results)
    pending = Counter(i for _, each, *_ in results for i in each)
    dropped = sum(dropped for _, _, dropped, _ in results)
    totals = [count + pending[i] for i, count in enumerate(counts)]
    assert max(totals) <= EPOCHS
    assert sum(totals) == EPOCHS * NUM_SAMPLES - 2 * dropped
