# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Micro-batches move from a slow rank to fast ranks, and the training is the same."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.reassign import StepLoader
from aikido_torch.straggler import SkipStraggler, WaitAll
from aikido_torch.testing import late, run_ranks

SIZE = 3
EPOCHS = 2
BATCH = 48
SLOW = 1
SLOW_S, FAST_S = 0.02, 0.004
SKIP = SkipStraggler(min_contributors=2, floor_ms=40, ceiling_ms=40)


def samples_of(count=192):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 8, generator=generator, dtype=torch.float64)


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def train(rank, size, options):
    """Moves, parameters, and computed labels, with a slow rank."""
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"batch_size": BATCH, "micro_batch_size": 2, "debug": True} | options
    steps = StepLoader(samples_of(), **options)
    ddp.register(model, optimizer=optimizer, policy=WaitAll(), steps=steps)
    for _ in range(EPOCHS):
        for step in steps:
            for micro_batch in step:
                late(SLOW_S if rank == SLOW else FAST_S)
                assert micro_batch.is_taken == (micro_batch.owner != rank)
                loss = model(micro_batch.data).square().mean()
                (loss * micro_batch.weight).backward()
            optimizer.step()
            optimizer.zero_grad()
    moves = steps.report()
    parameters = [p.detach() for p in model.parameters()]
    labels = [label for r in steps.log()["records"] for _, label in r["computed"]]
    return moves, parameters, labels


def train_alone():
    net, samples = make_net(), samples_of()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(samples), generator=generator)
        for batch in order.split(BATCH):
            net(samples[batch]).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize(
    "options", [{}, {"cost": [1.0 + i % 3 for i in range(192)]}], ids=["equal", "costs"]
)
def test_items_of_a_slow_rank_move_and_the_result_is_the_same(options):
    results = run_ranks(SIZE, train, options)
    alone = train_alone()
    items = EPOCHS * 192 // 2
    for moves, parameters, _ in results:
        from_slow = sum(n for (_, owner), n in moves.items() if owner == SLOW)
        assert from_slow > items / SIZE / 4
        for own, expected in zip(parameters, alone, strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-14)
    counts = Counter(label for *_, labels in results for label in labels)
    assert len(counts) == items
    assert set(counts.values()) == {1}


def test_without_helpers_nothing_moves():
    for moves, _, labels in run_ranks(SIZE, train, {"helpers": 0}):
        assert moves == {}
        assert len(labels) == EPOCHS * 192 // 2 // SIZE


# ---- late ranks ----


class Counting(nn.Module):
    """The gradient of parameter i is the share of sample i in the step."""

    def __init__(self, count):
        super().__init__()
        self.each = nn.Parameter(torch.zeros(count, dtype=torch.float64))

    def forward(self, indices):
        return self.each[indices].mean()


def count_samples(rank, size, epochs, num_samples):
    """Counts the samples in all sums, with moves, late ranks and broken-off steps."""
    model = DistributedDataParallel(Counting(num_samples))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    counts = torch.zeros(num_samples, dtype=torch.float64)

    def apply():
        counts.add_(model.module.each.grad * handle.outcomes[-1].weight * 2)
        optimizer.step()

    steps = StepLoader(
        range(num_samples), batch_size=BATCH, micro_batch_size=2, debug=True
    )
    handle = ddp.register(
        model, optimizer=optimizer, policy=SKIP, steps=steps, apply=apply, state={}
    )
    for _ in range(epochs):
        for step in steps:
            for place, micro_batch in enumerate(step):
                late(SLOW_S if rank == SLOW else FAST_S)
                if (rank, place) == (step.number % SIZE, 3) and step.number % 4 == 3:
                    late(0.2)
                (model(micro_batch.data) * micro_batch.weight).backward()
                if (rank, place) == (2, 2) and step.number % 5 == 4:
                    break
            apply()
            optimizer.zero_grad()
    handle.close()
    state = steps.state_dict()
    pending = [i for p in state["pending"] for i in steps._plan.indices_of(p)]
    moves = steps.report()
    return counts.round(decimals=6).tolist(), pending, moves, steps._pending.num_dropped


def test_each_sample_counts_once_with_moves_and_late_ranks():
    epochs, num_samples = 5, 192
    results = run_ranks(SIZE, count_samples, epochs, num_samples)
    counts = results[0][0]
    assert all(other == counts for other, *_ in results)
    pending = Counter(i for _, each, *_ in results for i in each)
    total = [count + pending[i] for i, count in enumerate(counts)]
    dropped = sum(dropped for *_, dropped in results)
    assert max(total) == epochs
    assert sum(total) == epochs * num_samples - 2 * dropped
    assert results[0][2]
