# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Small models for measuring training; tasks.py has their data."""

import functools
import zlib

import torch
from torch import nn

from benchmarks.tasks import ALPHABET, Task


def make_model(task: Task) -> nn.Module:
    """Model whose classes are the values of y in the task's data."""
    match task:
        case Task.DIGITS:
            return make_digits_model()
        case Task.TEXT:
            return TextModel()


def make_digits_model() -> nn.Module:
    return _convolutional(16, 128)


def make_digits_net(name: str) -> nn.Module:
    """A model for the digits; its name in NETS gives the bytes of its gradients."""
    return NETS[name]()


def _perceptron(hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def _convolutional(channels: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * 4 * 4, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


# The names are those of the sizes in progress_cases/plan.py.
NETS = {
    "37k": functools.partial(_perceptron, 123),
    "129k": functools.partial(_convolutional, 8, 116),
    "1.9m": functools.partial(_convolutional, 16, 885),
    "8m": functools.partial(_convolutional, 16, 3806),
}


class TextModel(nn.Module):
    """Predicts the next character from the last ones: an embedding, a GRU, a layer."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), width)
        self.recur = nn.GRU(width, 2 * width, batch_first=True)
        self.head = nn.Linear(2 * width, len(ALPHABET))

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recur(self.embed(context))
        return self.head(hidden[:, -1])


class Flat(nn.Module):
    """A vector with a constant gradient that costs nothing to compute."""

    def __init__(self, num_bytes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_bytes // 4))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return self.weight.sum() * factor


def fingerprint(model: nn.Module) -> int:
    """Checksum of the bits of all parameters."""
    parts = [p.detach().numpy().tobytes() for p in model.parameters()]
    return zlib.crc32(b"".join(parts))
