# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The sum of the replicas' contributions to one update."""

from collections.abc import Callable

import torch
from torch import nn

from aikido_torch.pipeline.runtime._channel import Pending
from aikido_torch.pipeline.runtime._stage import Update

__all__ = ["Sum", "num_tensors"]


def num_tensors(parameters: list[nn.Parameter]) -> int:
    """Number of tensors that the sum of an update consists of."""
    return len(_by_dtype(parameters))


class Sum:
    """A sum that begins at construction; call `update` when all of `pending` have
    ended.

    There is one tensor for each dtype of the parameters. A parameter that no
    micro-batch of this rank used counts as zeros. A parameter that no replica used has
    no gradient, as in one process, so the optimizer does not change it. The first
    tensor also has weight and loss of the update, and which parameters were used. If
    its dtype is too imprecise for a sum of row counts, these are in a tensor of their
    own.

    Args:
        mine: this rank's contribution.
        parameters: the parameters of its gradients.
        reduce: adds up a tensor over all replicas, in place.
    """

    def __init__(
        self,
        mine: Update,
        parameters: list[nn.Parameter],
        reduce: Callable[[torch.Tensor], Pending],
    ) -> None:
        self._parameters = parameters
        self._numbers = _by_dtype(parameters)
        told_in = next(iter(self._numbers))
        device = parameters[0].device if parameters else torch.device("cpu")
        used = [float(gradient is not None) for gradient in mine.gradients]
        told = torch.tensor(
            [mine.weight, mine.loss, *used], dtype=told_in, device=device
        )
        self._tensors = []
        for dtype, numbers in self._numbers.items():
            parts = [_flat(mine.gradients[i], parameters[i]) for i in numbers]
            self._tensors.append(
                torch.cat([told, *parts] if dtype is told_in else parts)
            )
        self.pending = [reduce(tensor) for tensor in self._tensors]

    def update(self) -> Update:
        """The update from all replicas."""
        total = Update([None] * len(self._parameters))
        used: list[float] = []
        for at, (numbers, tensor) in enumerate(
            zip(self._numbers.values(), self._tensors, strict=True)
        ):
            parts = tensor
            if at == 0:
                parts = tensor[2 + len(self._parameters) :]
                told = tensor[: 2 + len(self._parameters)].tolist()
                total.weight, total.loss, *used = told
            sizes = [self._parameters[i].numel() for i in numbers]
            for i, part in zip(numbers, torch.split(parts, sizes), strict=True):
                if used[i] > 0:
                    total.gradients[i] = part.view_as(self._parameters[i])
        return total


def _by_dtype(parameters: list[nn.Parameter]) -> dict[torch.dtype, list[int]]:
    """Indices of the parameters by dtype; the first entry also has weight and loss."""
    numbers: dict[torch.dtype, list[int]] = {}
    for i, parameter in enumerate(parameters):
        numbers.setdefault(parameter.dtype, []).append(i)
    first = next(iter(numbers), torch.float64)
    told_in = first if first in (torch.float32, torch.float64) else torch.float64
    return {told_in: numbers.pop(told_in, [])} | numbers


def _flat(gradient: torch.Tensor | None, parameter: nn.Parameter) -> torch.Tensor:
    if gradient is None:
        return torch.zeros_like(parameter).flatten()
    return gradient.flatten()
