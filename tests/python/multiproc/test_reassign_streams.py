# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Items of streams move from a slow rank to fast ranks: their owner sends the data."""

from collections import Counter

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import IterableDataset

from aikido_torch import ddp
from aikido_torch.reassign import StepLoader
from aikido_torch.straggler import SkipStraggler, WaitAll
from aikido_torch.testing import die, late, run_ranks

SIZE = 3
EPOCHS = 2
SLOW = 1
SLOW_S, FAST_S = 0.02, 0.004
BATCH = 48
EACH = BATCH // SIZE
# Samples of each rank. The streams end in different steps; the last sample of rank 2
# fills no micro-batch.
LENGTHS = [4 * EACH, 6 * EACH - 4, 3 * EACH + 1]


def samples_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(LENGTHS[rank], 8, generator=generator, dtype=torch.float64)


class Samples(IterableDataset):
    """The samples of one rank, in their order. Nobody else can read them."""

    def __init__(self, rank):
        self._rank = rank

    def __iter__(self):
        return iter(samples_of(self._rank))


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()


def train(rank, size):
    """Moves, parameters, computed labels and number of steps, with a slow rank."""
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.0005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"batch_size": BATCH, "micro_batch_size": 2, "debug": True}
    steps = StepLoader(Samples(rank), stage="send", **options)
    handle = ddp.register(model, optimizer=optimizer, policy=WaitAll(), steps=steps)
    for _ in range(EPOCHS):
        for step in steps:
            for micro_batch in step:
                late(SLOW_S if rank == SLOW else FAST_S)
                own = samples_of(micro_batch.owner)[micro_batch.indices]
                assert torch.equal(micro_batch.data, own)
                loss = model(micro_batch.data).square().mean()
                (loss * micro_batch.weight).backward()
            optimizer.step()
            optimizer.zero_grad()
    moves = steps.report()
    parameters = [p.detach() for p in model.parameters()]
    labels = [label for r in steps.log()["records"] for _, label in r["computed"]]
    return moves, parameters, labels, handle.steps


def train_alone():
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(EPOCHS):
        streams = [samples_of(rank)[: n // 2 * 2] for rank, n in enumerate(LENGTHS)]
        while batch := [each[:EACH] for each in streams if len(each)]:
            net(torch.cat(batch)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            streams = [each[EACH:] for each in streams]
    return [p.detach() for p in net.parameters()]


def test_items_of_a_slow_rank_move_and_the_result_is_the_same():
    results = run_ranks(SIZE, train)
    alone = train_alone()
    items = [n // 2 for n in LENGTHS]
    for moves, parameters, _, num_steps in results:
        from_slow = sum(n for (_, owner), n in moves.items() if owner == SLOW)
        assert from_slow > EPOCHS * items[SLOW] / 4
        assert num_steps == EPOCHS * 6
        for own, expected in zip(parameters, alone, strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-14)
    counts = Counter(label for _, _, labels, _ in results for label in labels)
    assert len(counts) == EPOCHS * sum(items)
    assert set(counts.values()) == {1}


# ---- a dead helper, late ranks ----

NUM_EACH = 4 * EACH
SKIP = SkipStraggler(min_contributors=2, floor_ms=200, ceiling_ms=200)
VICTIM = 2


class Numbers(IterableDataset):
    """Numbers of the samples of one rank."""

    def __init__(self, rank):
        self._rank = rank

    def __iter__(self):
        return iter(range(self._rank * NUM_EACH, (self._rank + 1) * NUM_EACH))


class Counting(nn.Module):
    """The gradient of parameter i is the share of sample i in the step."""

    def __init__(self):
        super().__init__()
        self.each = nn.Parameter(torch.zeros(SIZE * NUM_EACH, dtype=torch.float64))

    def forward(self, indices):
        return self.each[indices].mean()


def lose_a_helper(rank, size):
    """Counts the samples in all sums. A helper dies with items of the slow rank."""
    model = DistributedDataParallel(Counting())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    counts = torch.zeros(SIZE * NUM_EACH, dtype=torch.float64)
    lost = []

    def apply():
        counts.add_(model.module.each.grad * handle.outcomes[-1].weight * 2)
        optimizer.step()

    steps = StepLoader(
        Numbers(rank), batch_size=BATCH, micro_batch_size=2, stage="send"
    )
    handle = ddp.register(
        model, optimizer=optimizer, policy=SKIP, steps=steps, apply=apply, state={}
    )
    for _ in range(3):
        for step in steps:
            for micro_batch in step:
                late(SLOW_S if rank == SLOW else FAST_S)
                if rank == VICTIM and step.number >= 2 and micro_batch.is_taken:
                    die()
                (model(micro_batch.data) * micro_batch.weight).backward()
            apply()
            optimizer.zero_grad()
        lost.append(steps._pending.num_lost)
    labels = steps._pending.labels
    pending = [i for label in labels for i in steps._staged.of([label])[label].tolist()]
    return counts.round(decimals=6).tolist(), pending, lost


def test_items_of_a_dead_helper_come_back_to_their_owner():
    results = run_ranks(SIZE, lose_a_helper, may_die={VICTIM})
    assert results[VICTIM] is None
    survivors = [result for result in results if result is not None]
    counts = survivors[0][0]
    assert all(other == counts for other, *_ in survivors)
    pending = Counter(i for _, each, _ in survivors for i in each)
    assert survivors[SLOW][2][-1] > 0
    for rank in (0, SLOW):
        own = range(rank * NUM_EACH, (rank + 1) * NUM_EACH)
        assert {counts[i] + pending[i] for i in own} == {3}
