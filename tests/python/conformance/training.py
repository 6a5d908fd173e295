# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A small model, its data, and the result of training it in one process."""

import torch
import torch._dynamo  # otherwise DistributedDataParallel imports it in every rank
from torch import nn

WIDTH, OUT, ROWS, LEARNING_RATE = 8, 6, 4, 0.1


class Net(nn.Module):
    """Three layers, and one that only some batches use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = nn.Linear(WIDTH, 2 * WIDTH)
        self.middle = nn.Linear(2 * WIDTH, 2 * WIDTH)
        self.last = nn.Linear(2 * WIDTH, OUT)
        self.seldom = nn.Linear(2 * WIDTH, 2 * WIDTH)

    def forward(self, x, *, is_seldom=False):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.middle(x))
        if is_seldom:
            x = x + torch.tanh(self.seldom(x))
        return self.last(x)


def batch(rank, step, rows=ROWS):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, WIDTH, generator=generator)


def loss_of(output):
    return (output * output).mean()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def reference(size, steps, *, ranks_of=None, is_seldom=lambda rank, step: False):
    """Parameters by name after `steps` steps in which gradients of all ranks are
    averaged.

    `ranks_of(step)`: participating ranks, by default all; the sum is divided by `size`.
    """
    model = Net()
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(size) if ranks_of is None else ranks_of(step):
            output = model(batch(rank, step), is_seldom=is_seldom(rank, step))
            (loss_of(output) / size).backward()
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


def differences(found, wanted, *, tolerance=1e-5):
    """Names of parameters with unexpected values; a DTensor is gathered first."""
    wrong = []
    for name, value in wanted.items():
        mine = found[name].detach()
        mine = mine.full_tensor() if hasattr(mine, "full_tensor") else mine
        if not torch.allclose(mine, value, rtol=tolerance, atol=tolerance):
            wrong.append(f"{name}: off by {(mine - value).abs().max():g}")
    return wrong
