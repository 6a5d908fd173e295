# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The exchange of items (csrc/engine/reassign_exchange.h) between real ranks."""

import os
import signal
import threading
import time

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from aikido_torch import _C, _backend
from aikido_torch.errors import AbortedError, ConfigError, TimedOutError
from aikido_torch.testing import run_ranks
from harness.failures import failure_of

OWN = 8
VICTIM = 2


def exchange_of(helpers=3, **options):
    size = dist.get_world_size()
    return _C.ReassignExchange(
        _backend.backend_of(None), [0] * size, helpers, **options
    )


def label_of(step, rank, index):
    return step << 32 | rank << 16 | index


def own_labels(step, rank, count=OWN):
    return [label_of(step, rank, index) for index in range(count)]


def run_step(exchange, step, rank, seconds, count=OWN):
    """Labels of the items that this rank computes, which take `seconds` each."""
    exchange.begin(step, own_labels(step, rank, count), [1.0] * count)
    done = []
    while claim := exchange.claim(10):
        assert claim.label == label_of(step, claim.owner, claim.index)
        time.sleep(seconds)
        exchange.finished(seconds)
        done.append(claim.label)
    return done


def help_a_slow_rank(rank, size, steps):
    exchange = exchange_of()
    found = []
    for step in range(steps):
        dist.barrier()
        begin = time.perf_counter()
        done = run_step(exchange, step, rank, 0.02 if rank == 1 else 0.004)
        needed = time.perf_counter() - begin
        exchange.outcome(step, list(range(size)))
        report = exchange.report()
        assert report.step == step
        assert report.num_begun_with == OWN
        others = [label for label in done if label >> 16 & 0xFFFF != rank]
        assert [label for _, label in report.taken] == others
        found.append((done, needed, report.num_given, exchange.take_losses()))
    exchange.stop()
    return found


@pytest.mark.parametrize("size", [3, 4])
def test_items_move_to_fast_ranks_and_each_is_computed_once(size):
    steps = 4
    results = run_ranks(size, help_a_slow_rank, steps)
    for step in range(steps):
        done = [label for result in results for label in result[step][0]]
        assert sorted(done) == [
            label for rank in range(size) for label in own_labels(step, rank)
        ]
        assert all(result[step][3] == [] for result in results)
    slow = results[1]
    assert all(given > 0 for _, _, given, _ in slow[1:])
    # Alone the slow rank needs 160 ms.
    assert min(needed for _, needed, _, _ in slow[1:]) < 0.13


def lose_a_rank(rank, size):
    exchange = exchange_of()
    for step in range(2):
        dist.barrier()
        run_step(exchange, step, rank, 0.004)
        exchange.outcome(step, list(range(size)))
    dist.barrier()
    if rank == VICTIM:
        threading.Timer(0.03, os.kill, (os.getpid(), signal.SIGKILL)).start()
    begin = time.perf_counter()
    done = run_step(exchange, 2, rank, 0.004, 60 if rank == VICTIM else OWN)
    needed = time.perf_counter() - begin
    survivors = [r for r in range(size) if r != VICTIM]
    exchange.outcome(2, survivors)
    lost = [(loss.label, loss.helper, loss.reason) for loss in exchange.take_losses()]
    later = run_step(exchange, 3, rank, 0.004)
    # A rank that ends after the loss of another ends the group of all.
    store = _get_default_store()
    store.set(f"end-{rank}", "")
    store.wait([f"end-{r}" for r in survivors])
    return done, needed, lost, later


def test_survivors_of_a_killed_rank_end_the_step_and_go_on():
    results = run_ranks(4, lose_a_rank, may_die={VICTIM})
    assert results[VICTIM] is None
    survivors = [rank for rank in range(4) if rank != VICTIM]
    done, later = [], []
    for rank in survivors:
        labels, needed, lost, next_step = results[rank]
        assert needed < 1
        assert all((h, why) == (VICTIM, "skipped") for _, h, why in lost)
        done += labels + [label for label, _, _ in lost]
        later += next_step
    assert len(set(done)) == len(done)
    for rank in survivors:
        assert set(own_labels(2, rank)) <= set(done)
    assert sorted(later) == [
        label for rank in survivors for label in own_labels(3, rank)
    ]


def end_in_different_ways(rank, size):
    exchange = exchange_of(behind=0.2, answer_timeout_s=30)
    assert exchange.claim(1) is None
    assert exchange.report().step == -1
    wrong = [
        lambda: exchange.begin(0, [1, 2], [1.0]),
        lambda: exchange.begin(-1, [], []),
        lambda: exchange.begin(0, [1], [0.0]),
        lambda: exchange.outcome(0, [rank]),
        lambda: exchange.outcome(0, [size]),
        lambda: exchange_of(helpers=-1),
        lambda: exchange_of(answer_timeout_s=0),
        lambda: exchange_of(behind=-1),
        lambda: exchange.claim(float("nan")),
    ]
    texts = []
    for call in wrong:
        with pytest.raises(ConfigError) as raised:
            call()
        texts.append(str(raised.value))
    exchange.begin(0, [2**64 - 1, 5], [2.0, 1.0])
    claim = exchange.claim(1)
    shown = repr(claim)
    left = exchange.leave()
    exchange.stop()
    exchange.stop()
    with pytest.raises(AbortedError, match="it was stopped; make a new one"):
        exchange.claim(1)
    return texts, shown, left, repr(exchange.report())


def test_wrong_calls_are_refused_with_a_sentence():
    results = run_ranks(2, end_in_different_ways)
    for rank, (texts, shown, left, report) in enumerate(results):
        parts = [
            "begin(step=0) has 2 labels and 1 costs; each item has one of both",
            "step is -1; it must be 0 or more",
            "item 0 of step 0 has cost 0; costs must be above 0 and finite",
            "the outcome of step 0 comes before its end here",
            "outcome(step=0) names rank 2 of a group of 2",
            "-1",
            "answer_timeout is 0.000000 ms; it must be above 0",
            "behind is -1",
            "timeout_s is nan s; it must be 0 or more seconds",
        ]
        for part, text in zip(parts, texts, strict=True):
            assert part in text
        assert shown == (
            f"Claim(owner={rank}, index=0, label={2**64 - 1}, cost=2, is_last=False, "
            "num_left=1)"
        )
        assert left == [(rank, 0, 2**64 - 1), (rank, 1, 5)]
        assert report.startswith("StepReport(step=0, num_begun_with=2, num_given=0,")


def wait_for_a_rank_that_does_not_begin(rank, size, end):
    exchange = exchange_of()
    if rank == 1:
        exchange.begin(0, [1], [1.0])
        exchange.claim(1)
        exchange.finished(60)  # so its patience with others is 15 s
        while exchange.claim(1):
            continue
        exchange.begin(1, [2], [1.0])
        exchange.claim(1)
        timed_out = failure_of(lambda: exchange.claim(0.05))
        assert timed_out.name == TimedOutError.__name__
        call = exchange.stop if end == "stop" else dist.group.WORLD.abort
        threading.Timer(0.2, call).start()
        begin = time.perf_counter()
        failure = failure_of(lambda: exchange.claim(10))
        return failure.name, time.perf_counter() - begin
    time.sleep(1)
    return None


@pytest.mark.parametrize("end", ["stop", "abort"])
def test_a_waiting_claim_ends_with_its_exchange_and_with_its_group(end):
    results = run_ranks(2, wait_for_a_rank_that_does_not_begin, end)
    name, seconds = results[1]
    assert name == AbortedError.__name__
    assert 0.1 < seconds < 5


def outlive_the_group(rank, size):
    exchange = exchange_of()
    run_step(exchange, 0, rank, 0.001)
    begin = time.perf_counter()
    dist.destroy_process_group()
    needed = time.perf_counter() - begin
    failure = failure_of(lambda: exchange.begin(1, [1], [1.0]))
    return needed, failure.name, exchange.report().step


def test_an_exchange_neither_delays_the_end_of_its_group_nor_needs_it():
    for needed, name, step in run_ranks(3, outlive_the_group):
        assert needed < 3
        assert (name, step) == (AbortedError.__name__, 0)
