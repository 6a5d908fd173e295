# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Exactly once: each micro-batch is in one sum, also if ranks are late and skipped."""

from collections import Counter

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.reassign import StepLoader
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late, run_ranks

SIZE = 3
EPOCHS = 6
NUM_SAMPLES = 48
MICRO = 2
SKIP = SkipStraggler(min_contributors=2, floor_ms=30, ceiling_ms=30)


class Counting(nn.Module):
    """The gradient of parameter i is the share of sample i in the step."""

    def __init__(self):
        super().__init__()
        self.each = nn.Parameter(torch.zeros(NUM_SAMPLES, dtype=torch.float64))

    def forward(self, indices):
        return self.each[indices].mean()


def train(rank, size, lost):
    """Counts the samples in the sums of all steps, own and replayed ones."""
    model = DistributedDataParallel(Counting())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    counts = torch.zeros(NUM_SAMPLES, dtype=torch.float64)

    def apply():
        num_items = handle.outcomes[-1].weight
        counts.add_(model.module.each.grad * num_items * MICRO)
        optimizer.step()

    steps = StepLoader(
        range(NUM_SAMPLES), batch_size=12, micro_batch_size=MICRO, lost=lost, debug=True
    )
    handle = ddp.register(
        model, optimizer=optimizer, policy=SKIP, steps=steps, apply=apply, state={}
    )
    most_own = 0
    for epoch in range(EPOCHS):
        for step in steps:
            if (rank, epoch) in ((2, 1), (2, 2), (1, 4)) and step.number % 2:
                late(0.3)
            for micro_batch in step:
                (model(micro_batch.data) * micro_batch.weight).backward()
            most_own = max(most_own, len(step.labels))
            apply()
            optimizer.zero_grad()
    handle.close()
    state = steps.state_dict()
    pending = [i for p in state["pending"] for i in steps._plan.indices_of(p)]
    return counts.round(decimals=6).tolist(), pending, steps._pending, most_own


def test_each_sample_is_in_one_sum_or_is_still_to_come():
    results = run_ranks(SIZE, train, "reissue")
    counts = results[0][0]
    assert all(other == counts for other, *_ in results)
    pending = Counter(i for _, each, *_ in results for i in each)
    assert [count + pending[i] for i, count in enumerate(counts)] == [EPOCHS] * 48
    lost = sum(items.num_lost for _, _, items, _ in results)
    issued = sum(items.num_issued_again for _, _, items, _ in results)
    assert lost > 0
    assert issued == lost - sum(pending.values()) / MICRO > 0
    assert max(most for *_, most in results) <= 4  # twice the own items


def test_dropped_items_are_counted():
    results = run_ranks(SIZE, train, "drop")
    counts = results[0][0]
    dropped = sum(items.num_dropped for _, _, items, _ in results)
    assert dropped > 0
    assert sum(counts) == EPOCHS * NUM_SAMPLES - dropped * MICRO
    assert max(counts) == EPOCHS
