# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Shuffling loaders, one on each rank."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aikido_torch import pipeline
from aikido_torch.testing import run_ranks
from harness.failures import failure_of
from harness.pipelines import WIDTH, layered, sgd, squared

pytestmark = pytest.mark.beside

ROWS = 32


def train_shuffled(rank, size, weights, shuffled_by):
    """Results of the first and the second epoch."""
    torch.manual_seed(rank if shuffled_by == "another seed" else 5)
    x = torch.arange(ROWS * WIDTH, dtype=torch.float64).view(ROWS, WIDTH) / ROWS
    generator = None
    if shuffled_by == "its own generator":
        generator = torch.Generator().manual_seed(7)
    loader = DataLoader(
        TensorDataset(x, x), batch_size=4, shuffle=True, generator=generator
    )
    if shuffled_by == "no targets":
        loader = [(part, part if rank else None) for part, _ in loader]
    stages = layered(size)
    stages[0] = nn.Sequential(nn.Dropout(0.1), stages[0])  # random on rank 0
    name = "1f1b_async" if weights else "1f1b"
    schedule = pipeline.schedule(name, stages=size, micro_batches=4, weights=weights)
    pipe = pipeline.Pipeline(stages, schedule=schedule, optimizer=sgd, loss_fn=squared)
    return [
        failure_of(lambda: pipe.train(loader if rank != 1 else None, steps=8))
        for _ in range(2)
    ]


TOLD = (
    "the loaders of stage 0 (rank 0) and stage 2 (rank 2) gave other targets for the "
    "same batches, so outputs were compared with those of other rows. Give all ranks "
)


@pytest.mark.parametrize("weights", [None, "stash"])
@pytest.mark.parametrize(
    ("shuffled_by", "first_fails", "second_fails"),
    [
        ("another seed", True, True),
        ("the same seed", False, True),
        ("its own generator", False, False),
        ("no targets", False, False),
    ],
)
def test_loaders_with_different_orders_are_detected(
    weights, shuffled_by, first_fails, second_fails
):
    results = run_ranks(3, train_shuffled, weights, shuffled_by, group_timeout=30)
    for first, second in results:
        assert (first.name == "ConfigError") == first_fails, first
        assert first.text.startswith(TOLD if first_fails else "")
        if not first_fails:
            assert (second.name == "ConfigError") == second_fails, second
            assert second.text.startswith(TOLD if second_fails else "")
