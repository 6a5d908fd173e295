# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Batches with an unusual end: left by an exception, or asked for completion early."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from aikido_torch.errors import ConfigError
from aikido_torch.testing import run_ranks

CPU = torch.device("cpu")
SOON_S = 5.0
# So long that a work that never completes does not end by it.
GROUP_TIMEOUT = 60


def shared():
    """A tensor to which no result can be written."""
    return torch.ones(1).expand(2)


def ends_on_another_thread(work):
    thread = threading.Thread(target=work.wait, daemon=True)
    thread.start()
    thread.join(SOON_S)
    return not thread.is_alive()


def leave_by_an_exception(rank, size):
    """Leaves a batch open, as torch's context manager does on an exception."""
    seen = {}
    group = dist.group.WORLD
    other = 1 - rank
    received = torch.zeros(2)
    group._start_coalescing(CPU)
    dist.isend(torch.full((2,), float(rank)), other)
    first = dist.irecv(received, other)
    with pytest.raises(ConfigError, match="has elements that share memory"):
        dist.irecv(shared(), other)
    seen["what was in it"] = ends_on_another_thread(first)
    seen["received"] = received.tolist() == [float(other)] * 2
    later = torch.full((3,), float(rank))
    work = dist.broadcast(later, src=1, async_op=True)
    seen["what came later"] = ends_on_another_thread(work)
    seen["broadcast"] = later.tolist() == [1.0] * 3
    done = threading.Event()
    future = dist.broadcast(later, src=0, async_op=True).get_future()
    future.then(lambda _: done.set())
    seen["future"] = done.wait(SOON_S)
    # A refused collective ends its batch, and the next batch works normally.
    group._start_coalescing(CPU)
    with pytest.raises(ConfigError, match="has elements that share memory"):
        dist.broadcast(shared(), src=other)
    group._start_coalescing(CPU)
    later.fill_(rank + 7.0)
    dist.broadcast(later, src=1)
    work = group._end_coalescing(CPU)
    work.wait()
    seen["next batch"] = later.tolist() == [8.0] * 3
    return [name for name, is_good in seen.items() if not is_good]


def test_a_refused_call_that_leaves_a_batch_ends_it():
    results = run_ranks(2, leave_by_an_exception, group_timeout=GROUP_TIMEOUT)
    assert results == [[]] * 2


def catch_inside(rank, size):
    seen = {}
    other = 1 - rank
    received = torch.zeros(2)
    with _coalescing_manager(device=CPU, async_ops=True) as batch:
        dist.isend(torch.full((2,), float(rank)), other)
        dist.irecv(received, other)
        with pytest.raises(ConfigError, match="has elements that share memory"):
            dist.irecv(shared(), other)
    batch.wait()
    seen["before"] = received.tolist() == [float(other)] * 2
    # Later calls are in no batch, and the end of the batch must report that.
    group = dist.group.WORLD
    group._start_coalescing(CPU)
    with pytest.raises(ConfigError, match="has elements that share memory"):
        dist.irecv(shared(), other)
    sent = dist.isend(torch.full((2,), rank + 5.0), other)
    work = dist.irecv(received, other)
    with pytest.raises(ConfigError, match="was refused, which ended the batch: those"):
        group._end_coalescing(CPU)
    work.wait()
    sent.wait()
    seen["after"] = received.tolist() == [other + 5.0] * 2
    return [name for name, is_good in seen.items() if not is_good]


def test_a_refused_call_that_is_caught_inside_a_batch_loses_nothing():
    assert run_ranks(2, catch_inside, group_timeout=GROUP_TIMEOUT) == [[]] * 2


def ask_inside(rank, size):
    """Asking a batch for completion ends it for this thread and loses no call."""
    seen = {}
    other = 1 - rank
    for name, ask in {
        "is_completed": lambda work: work.is_completed(),
        "future": lambda work: work.get_future(),
        "future result": lambda work: work.get_future_result(),
    }.items():
        received = torch.zeros(2)
        dist.barrier()
        if rank == 1:
            time.sleep(0.3)
        with _coalescing_manager(device=CPU, async_ops=True) as batch:
            work = dist.irecv(received, other)
            ask(work)
            dist.isend(torch.full((2,), rank + 1.0), other)
        batch.wait()
        seen[f"{name}, all of it"] = received.tolist() == [other + 1.0] * 2
        seen[f"{name}, itself"] = ends_on_another_thread(work)
    # The batch has only this call, and no code ends it.
    dist.group.WORLD._start_coalescing(CPU)
    work = dist.broadcast(torch.ones(2), src=0, async_op=True)
    until = time.monotonic() + SOON_S
    while not work.is_completed() and time.monotonic() < until:
        time.sleep(0.01)
    seen["completed"] = work.is_completed()
    return [name for name, is_good in seen.items() if not is_good]


def make_one_batch(rank, size):
    """All calls of a batch return the same work, also with torch's flight recorder."""
    group = dist.group.WORLD
    group._start_coalescing(CPU)
    works = [dist.broadcast(torch.ones(2), src=0, async_op=True) for _ in range(3)]
    together = group._end_coalescing(CPU)
    together.wait()
    return [work is together for work in works]


def test_calls_between_start_and_end_are_one_work():
    assert run_ranks(2, make_one_batch) == [[True] * 3] * 2


def test_a_batch_that_is_asked_for_completion_ends_and_covers_all_its_calls():
    assert run_ranks(2, ask_inside, group_timeout=GROUP_TIMEOUT) == [[]] * 2
