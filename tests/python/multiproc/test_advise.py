# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Verdicts that reach the straggler policies of real ranks."""

import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch import trace
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks
from aikido_torch.trace.analyze._verdict import Verdict

SLOW = 2
WAITS = SkipStraggler(floor_ms=2000.0, ceiling_ms=2000.0)


def owners_of_a_sum():
    work = aikido_torch.all_reduce(torch.ones(1 << 20), policy=WAITS, async_op=True)
    work.wait()
    return {shard.owner for shard in work.outcome().shards}


def owners_follow(rank, size):
    """Number of ranks that soon see the expected owners, for each verdict in turn."""
    seen = []
    for cause, wanted in [
        ("none", set(range(size))),
        ("network out", set(range(size)) - {SLOW}),
        ("compute", set(range(size))),
    ]:
        trace.apply_advice(Verdict(cause, SLOW, "steady", 0.1, 0, 4, "A sentence."))
        num = torch.zeros(1)
        # The change of owners is a new view. Later calls use it.
        for _ in range(200):
            num = torch.tensor([float(owners_of_a_sum() == wanted)])
            dist.all_reduce(num)
            if num.item() == size:
                break
            time.sleep(0.01)
        seen.append(num.item())
    return seen


def test_shards_leave_a_rank_with_a_slow_link_and_return_to_a_late_caller():
    for seen in run_ranks(4, owners_follow):
        assert seen == [4, 4, 4]


def train_and_follow(rank, size):
    """Trains with long steps on one rank until all ranks have the verdict."""
    model = DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = trace.watch(model, optimizer)
    dist.barrier()
    following = trace.auto_advise(every_s=0.5, steps=4)
    num_heard = torch.zeros(1)
    end = time.monotonic() + 40
    while num_heard.item() < size and time.monotonic() < end:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 64)).sum()
        if rank == SLOW:
            time.sleep(0.1)
        loss.backward()
        optimizer.step()
        said = following.verdict
        num_heard = torch.tensor([float(said is not None and said.rank == SLOW)])
        dist.all_reduce(num_heard)
    following.stop()
    following.stop()
    watch.remove()
    return following.verdict


@pytest.mark.alone
def test_all_ranks_learn_the_slow_rank_from_the_traces_of_a_training():
    for verdict in run_ranks(3, train_and_follow, rendezvous="tcp"):
        # The rank sleeps between its passes, which is code of the training loop.
        assert (verdict.cause, verdict.rank) == ("loop", SLOW)
        assert verdict.pattern == "steady"
