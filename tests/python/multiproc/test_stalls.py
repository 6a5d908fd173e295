# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Stopped or late ranks that other ranks need: no rank dies or waits long."""

import os
import signal
import time
import traceback
from pathlib import Path

import torch
import torch._dynamo  # imported before the fork; some optimizers need it
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import Options, ddp, errors
from aikido_torch.ddp import StateCopy
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks, stop

WIDTH = 256  # 256 KiB of weights
SMALL_LOG = Options(straggler_log_bytes=1 << 20)  # room for four steps


def training(width=WIDTH, **arguments):
    torch.manual_seed(0)
    net = nn.Linear(width, width)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    handle = ddp.register(model, optimizer=optimizer, **arguments)

    def step(rank, number):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(100 * number + rank)
        model(torch.randn(2, width, generator=generator)).square().mean().backward()
        optimizer.step()
        late(0.005)

    return net, handle, step


def weights_after(rank, num_steps, at, pause, **arguments):
    """The weights, and the seconds of the slowest step."""
    net, handle, step = training(**arguments)
    steps, was_late, slowest = 0, False, 0.0
    while (steps := steps + handle.catch_up()) < num_steps:
        if rank == 2 and steps >= at and not was_late:
            was_late = True
            pause()
        begin = time.monotonic()
        step(rank, steps)
        slowest = max(slowest, time.monotonic() - begin)
        steps += 1
    return net.weight.detach().clone(), slowest


def stop_with_a_small_log(rank, size):
    found = weights_after(rank, 40, 10, lambda: stop(0.6))
    dist.barrier()
    return found


def test_the_others_wait_for_a_stopped_rank_whose_log_is_full():
    found = run_ranks(3, stop_with_a_small_log, options=SMALL_LOG, group_timeout=20.0)
    assert all(torch.equal(weights, found[0][0]) for weights, _ in found)
    assert max(slowest for _, slowest in found[:2]) > 0.3  # proof that they waited


def stop_near_the_end(rank, size):
    return weights_after(rank, 30, 28, lambda: stop(0.6))


def test_the_others_stay_for_a_rank_that_is_stopped_near_the_end():
    found = run_ranks(3, stop_near_the_end, group_timeout=20.0)
    assert all(torch.equal(weights, found[0][0]) for weights, _ in found)


def copy_at_the_limit(rank, size):
    policy = SkipStraggler(floor_ms=20, ceiling_ms=20, max_consecutive_skips=5)
    return weights_after(
        rank, 60, 10, lambda: late(1.0), policy=policy, copy=StateCopy(when="always")
    )


def test_no_rank_asks_for_a_state_while_all_wait_for_that_rank():
    found = run_ranks(3, copy_at_the_limit, group_timeout=20.0)
    assert all(torch.equal(weights, found[0][0]) for weights, _ in found)
    # No longer than the rank was late. Asking in vain would take 2 s more.
    assert max(slowest for _, slowest in found) < 2.5


def leave_alone(rank, size):
    policy = SkipStraggler(
        floor_ms=20, ceiling_ms=20, max_consecutive_skips=10**6, on_log_full="exclude"
    )
    _, handle, step = training(policy=policy)
    steps = 0
    begin = time.monotonic()
    try:
        while (steps := steps + handle.catch_up()) < 30:
            if rank == 2 and steps == 8:
                late(1.5)  # the others are done and have left
            begin = time.monotonic()
            step(rank, steps)
            steps += 1
            begin = time.monotonic()
    except RuntimeError as error:
        return time.monotonic() - begin, str(error)
    return None


def test_a_rank_that_is_excluded_and_alone_gets_an_error_at_once():
    options = Options(straggler_log_bytes=1 << 20, shutdown_linger_ms=100)
    took, text = run_ranks(3, leave_alone, options=options, group_timeout=20.0)[2]
    assert took < 3.0
    # The text depends on the number of ranks that are still leaving.
    sentences = ["have left or are lost", "has left group", "left the group or failed"]
    assert any(sentence in text for sentence in sentences), text


def lose_the_majority(rank, size, folder):
    """Rank 2 is excluded. Then rank 1 dies, and rank 0 does no more steps."""
    is_out, is_over = Path(folder, "out"), Path(folder, "over")
    policy = SkipStraggler(min_contributors=1, floor_ms=5, on_log_full="exclude")
    _, handle, step = training(policy=policy)
    started = 0.0
    try:
        for number in range(2000):
            handle.catch_up()
            if rank == 2 and number == 5:
                while handle._backend.standing != "refused":
                    late(0.01)
                is_out.touch()
                while not handle._backend.gone:
                    late(0.01)
                started = time.monotonic()
            if rank == 1 and is_out.exists():
                os.kill(os.getpid(), signal.SIGKILL)
            step(rank, number)
    except dist.DistBackendError as error:
        took = time.monotonic() - started
        if rank == 2:
            is_over.touch()
        while rank == 0 and not is_over.exists():
            late(0.01)
        return str(error), getattr(error, "rank", None), took
    return None


def test_an_excluded_rank_gets_an_error_at_once_if_the_view_lost_its_majority(tmp_path):
    results = run_ranks(
        3, lose_the_majority, str(tmp_path), options=SMALL_LOG, may_die=[1]
    )
    text, culprit, took = results[2]
    assert culprit == 1, text
    assert "rank 1 left the group or failed" in text
    assert took < 5.0  # limit for calls of the group: 30 s
    assert "rank 1 is lost" in results[0][0]


def train_until_another_dies(rank, size):
    _, handle, step = training()
    try:
        for number in range(1000):
            handle.catch_up()
            if rank == 1 and number == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            step(rank, number)
    except errors.PeerLostError as error:
        return error.rank, error.operation, "backward" in traceback.format_exc()
    return None


def test_an_error_in_a_backward_names_the_rank_that_caused_it():
    # The first steps wait for all ranks.
    results = run_ranks(2, train_until_another_dies, may_die=[1])
    assert results[0] == (1, "all_reduce", True)
