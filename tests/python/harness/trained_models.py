# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Small models with many layouts and dtypes, their batches, and optimizers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Model:
    """Recipe of a model, and the shape of a batch."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (4, 8)
    memory_format: torch.memory_format = torch.contiguous_format
    dtype: torch.dtype = torch.float32
    has_unused: bool = False
    tokens: int = 0  # > 0: a batch is integers below this


class _Unused(nn.Module):
    """One layer never has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class _Tied(nn.Module):
    """Two layers share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.out = nn.Linear(8, 16, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.embedding(x))


class _Mixed(nn.Module):
    """Parameters of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).double())


def _layers() -> nn.Module:
    blocks = [m for _ in range(4) for m in (nn.Linear(8, 8), nn.Tanh())]
    return nn.Sequential(*blocks)


def _permuted() -> nn.Module:
    net = nn.Linear(8, 8)
    net.weight = nn.Parameter(torch.randn(8, 8).t())
    net.bias = nn.Parameter(torch.randn(16)[::2])
    return net


def _frozen() -> nn.Module:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    net[0].weight.requires_grad_(False)
    return net


def _scalar() -> nn.Module:
    net = nn.Linear(8, 8)
    net.temperature = nn.Parameter(torch.tensor(1.0))
    forward = net.forward
    net.forward = lambda x: forward(x) * net.temperature
    return net


_images, _volumes = (2, 3, 6, 6), (1, 2, 4, 4, 4)
MODELS = {
    "linear": Model(lambda: nn.Linear(8, 8)),
    "layers": Model(_layers),
    "wide": Model(lambda: nn.Linear(8, 20_000), shape=(1, 8)),
    "images": Model(lambda: nn.Conv2d(3, 8, 3), _images),
    "channels_last": Model(
        lambda: nn.Conv2d(3, 8, 3), _images, memory_format=torch.channels_last
    ),
    "channels_last_3d": Model(
        lambda: nn.Conv3d(2, 3, 2), _volumes, memory_format=torch.channels_last_3d
    ),
    "permuted": Model(_permuted),
    "frozen": Model(_frozen),
    "scalar": Model(_scalar),
    "unused": Model(_Unused, has_unused=True),
    "tied": Model(_Tied, shape=(4,), tokens=16),
    "mixed": Model(_Mixed),
    "bfloat16": Model(lambda: nn.Linear(8, 8), dtype=torch.bfloat16),
    "float64": Model(_layers, dtype=torch.float64),
    "recurrent": Model(lambda: nn.GRUCell(8, 8)),
}


def make_model(name: str) -> nn.Module:
    """A new model; the same for the same seed of torch."""
    found = MODELS[name]
    net = found.make().to(dtype=found.dtype if found.dtype != torch.float32 else None)
    if found.memory_format is torch.contiguous_format:
        return net  # to() would make permuted parameters contiguous
    return net.to(memory_format=found.memory_format)


def batch_for(name: str, seed: int) -> list[torch.Tensor]:
    """The arguments of the model for one batch."""
    found = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    if found.tokens:
        return [torch.randint(found.tokens, found.shape, generator=generator)]
    batch = torch.randn(found.shape, generator=generator).to(found.dtype)
    return [batch.contiguous(memory_format=found.memory_format)]


Make = Callable[[Any], torch.optim.Optimizer]
_optim = torch.optim
OPTIMIZERS: dict[str, Make] = {
    "sgd": partial(_optim.SGD, lr=0.05),
    "momentum": partial(_optim.SGD, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": partial(_optim.AdamW, lr=0.01, weight_decay=0.1),
    "adam_loop": partial(_optim.Adam, lr=0.01, amsgrad=True, foreach=False),
    "fused": partial(_optim.AdamW, lr=0.01, fused=True),
    "rmsprop": partial(_optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
    "adagrad": partial(_optim.Adagrad, lr=0.05),
    "nadam": partial(_optim.NAdam, lr=0.01),
    "adamax": partial(_optim.Adamax, lr=0.01),
    "adafactor": partial(_optim.Adafactor, lr=0.01),
}
