# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Layers that sleep: their time, traffic and memory are known, and they need no core.

The computation of a layer is real and tiny: the mean of each row and a number of its
own, so gradients are correct, and it has the given number of weights.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

ROWS = 4  # rows of a micro-batch


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One layer; bytes are those of one micro-batch in float32."""

    forward_ms: float
    backward_ms: float
    output_bytes: int
    weight_bytes: int = 4

    @property
    def width(self) -> int:
        """Numbers in a row of its output."""
        return max(1, self.output_bytes // (4 * ROWS))


# Times in which layers of this process computed: (begin, end) by the machine's clock.
spans: list[tuple[float, float]] = []
# Times at which the first layer of the model finished a backward.
completions: list[float] = []


def _sleep(seconds: float) -> None:
    begin = time.monotonic()
    time.sleep(seconds)
    spans.append((begin, time.monotonic()))


class _Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, layer: "Timed") -> Any:
        ctx.layer, ctx.width = layer, x.shape[1]
        _sleep(layer.spec.forward_ms / 1e3)
        mean = x.mean(dim=1, keepdim=True) + weight[0]
        return mean.expand(-1, layer.spec.width).contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        layer, (gradient,) = ctx.layer, gradients
        _sleep(layer.spec.backward_ms / 1e3)
        rows = gradient.sum(dim=1, keepdim=True)
        of_weight = torch.zeros_like(layer.weight)
        of_weight[0] = rows.sum()
        of_input = (rows / ctx.width).expand(-1, ctx.width).contiguous()
        if layer.is_first:
            completions.append(time.monotonic())
        return of_input, of_weight, None


class Timed(nn.Module):
    """One such layer; the first one of a model notes when a micro-batch is finished."""

    def __init__(self, spec: Spec, *, is_first: bool) -> None:
        super().__init__()
        self.spec, self.is_first = spec, is_first
        self.weight = nn.Parameter(torch.zeros(max(1, spec.weight_bytes // 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Compute.apply(x, self.weight, self)


def model_of(specs: Sequence[Spec]) -> nn.Sequential:
    return nn.Sequential(
        *(Timed(spec, is_first=number == 0) for number, spec in enumerate(specs))
    )


def sample() -> torch.Tensor:
    """A small micro-batch of inputs."""
    return torch.ones(ROWS, 4)
