# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trainings with delayed updates, on ranks and as their definition in one process.

All values are such that a mean of the gradients of two ranks has the same bits in any
order of the sum.
"""

from collections import deque
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.straggler import WaitAll

STEPS = 12


class Net(nn.Module):
    """Three layers, of which one is used only on request."""

    def __init__(self, *, has_unused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        if has_unused:
            self.unused = nn.Linear(2, 2)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(samples).tanh())


def batch_of(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(4, 6, generator=generator)


def loss_of(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    return model(batch_of(rank, step)).square().mean()


def adam_of(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.05)


def momentum_of(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def values_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Copies of all parameters and of the tensors of the optimizer."""
    found = [p.detach().clone() for p in net.parameters()]
    for parameter in net.parameters():
        state = optimizer.state.get(parameter, {})
        found += [v.clone() for v in state.values() if isinstance(v, torch.Tensor)]
    return found


def train_alone(
    slack: int,
    size: int,
    *,
    optimizer_of: Callable[[nn.Module], torch.optim.Optimizer] = momentum_of,
    weights: Callable[[int], tuple[float, ...]] | None = None,
    num_strict: int = 2,
    flush_after: int = -1,
    has_unused: bool = False,
    lost: tuple[int, ...] = (),
) -> list[torch.Tensor]:
    """The definition: the mean gradient of step t is applied in step t + slack.

    Args:
        slack: steps by which updates are late.
        size: number of ranks.
        optimizer_of: makes the optimizer.
        weights: the weights of the ranks in a step; None: they are equal.
        num_strict: first steps, whose updates are not late.
        flush_after: step after which all pending updates are applied.
        has_unused: argument of `Net`.
        lost: steps whose updates a scaler leaves out.
    """
    net = Net(has_unused=has_unused)
    optimizer, pending = optimizer_of(net), deque()

    def apply(step, gradients):
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.grad = gradient
        if step not in lost:
            optimizer.step()

    for step in range(STEPS):
        given = [1.0] * size if weights is None else weights(step)
        means = [None for _ in net.parameters()]
        for rank in range(size):
            net.zero_grad()
            loss_of(net, rank, step).backward()
            for i, parameter in enumerate(net.parameters()):
                if parameter.grad is not None:
                    part = parameter.grad * given[rank]
                    means[i] = part if means[i] is None else means[i] + part
        means = [None if mean is None else mean / sum(given) for mean in means]
        pending.append((step, means))
        kept = 0 if step < num_strict or step == flush_after else slack
        while len(pending) > kept:
            apply(*pending.popleft())
    while pending:
        apply(*pending.popleft())
    return values_of(net, optimizer)


def start(slack, *, optimizer_of=momentum_of, has_unused=False, wrap=None, **options):
    """A model of two buckets, its optimizer and its handle."""
    net = Net(has_unused=has_unused)
    model = DistributedDataParallel(net, **{"bucket_cap_mb": 0.0001, **(wrap or {})})
    optimizer = optimizer_of(net)
    handle = ddp.register(
        model, optimizer=optimizer, policy=WaitAll(), slack=slack, **options
    )
    return model, optimizer, handle
