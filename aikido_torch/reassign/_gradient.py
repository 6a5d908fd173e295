# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Gradient of one rank in a step, as the mean over a number of items.

Note [weights of micro-batches]
A rank does not know how many items it will compute until it claims the last one. So
each item counts 1/c, with the c items that the rank begins the step with. If the number
n is another one in the end, the sum of the gradients is multiplied by c/n, before the
last backward. Together with the weight n of the rank, the mean over ranks is the mean
over items. Items that are not whole count with their part.

Note [backward without an item]
A rank may learn after its last item that nothing follows. Its gradients were not summed
over ranks then, because DistributedDataParallel starts the sums in a backward. So this
rank makes a backward without a loss: a function of all parameters that returns no
gradients. DistributedDataParallel takes the accumulated gradients then.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from aikido_torch._hook import Hook
from aikido_torch.recovery._backward import after_backward

__all__ = ["StepGradient"]

# Parameters at both ends of the model that show that a backward is running.
_WATCHED = 4


class StepGradient:
    """The gradient of the present step. For the training thread only.

    Args:
        model: its parameters have the gradients.
        set_weight: sets the weight of this rank's gradients in the present step.

    Attributes:
        device: device of the first parameter.
        is_on_gpu: True if the device computes behind the calls, on a stream.
        computed_at: when the last backward computed the gradient of a parameter near an
            end of the model, by `time.monotonic()`. The wait for other ranks follows.
    """

    def __init__(
        self, model: DistributedDataParallel, set_weight: Callable[[float], None]
    ) -> None:
        self._model = model
        self._set_weight = set_weight
        self._parameters = [p for p in model.module.parameters() if p.requires_grad]
        self.device = next(model.module.parameters()).device
        self.is_on_gpu = self.device.type == "cuda"
        self.computed_at = 0.0
        self._divisor = 1.0
        # Sizes of the items in the sum, and of the item of the next backward.
        self._sizes: list[float] = []
        self._is_summed = False
        self._is_in_backward = self._has_begun = self._has_ended = False
        ends = self._parameters[:_WATCHED] + self._parameters[-_WATCHED:]
        hook = Hook(self._on_gradient, is_weak=True)
        self._hooks = [
            p.register_post_accumulate_grad_hook(hook) for p in dict.fromkeys(ends)
        ]

    def begin(self, sizes: Iterable[float]) -> None:
        """Begins a step with items of these sizes, in whole micro-batches."""
        size = math.fsum(sizes)
        self._divisor = size or 1.0
        self._sizes = []
        self._is_summed = self._has_begun = self._has_ended = False

    def before(self, size: float, *, is_last: bool) -> float:
        """Prepares the backward of an item. Returns the factor of its loss.

        Args:
            size: of the item, in whole micro-batches.
            is_last: True if the sums over ranks begin in this backward.
        """
        self._sizes.append(size)
        if is_last:
            self._finish_sum()
        self._is_summed = is_last
        if self._model.require_backward_grad_sync != is_last:  # to set it takes long
            self._model.require_backward_grad_sync = is_last
        self._is_in_backward = self._has_begun = self._has_ended = False
        return size / self._divisor

    @property
    def is_summed(self) -> bool:
        """True if the last backward sums the gradients over ranks."""
        return self._is_summed

    @property
    def is_whole(self) -> bool:
        """False if the backward of the last item has begun and not ended."""
        return not self._has_begun or self._has_ended

    def undo(self) -> bool:
        """The loop has left the last item. Removes it if it has had no backward.

        Returns:
            True if it was removed.
        """
        if self._has_begun:
            return False
        self._sizes.pop()
        self._is_summed = False
        return True

    def end(self) -> None:
        """Sums the gradients over ranks, unless the last backward did that."""
        self._model.require_backward_grad_sync = True
        if self._is_summed:
            return
        self._is_summed = True
        self._finish_sum()
        backward_without_item(self._model, self._parameters)

    def close(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _finish_sum(self) -> None:
        """Makes the gradients the mean over the items that are in them at last."""
        size = math.fsum(self._sizes)
        self._set_weight(size)
        if size in (0.0, self._divisor):
            return
        found = [p.grad for p in self._parameters if p.grad is not None]
        if found:
            with torch.no_grad():
                torch._foreach_mul_(found, self._divisor / size)
        self._divisor = size

    def _on_gradient(self, _: torch.Tensor) -> None:
        self._has_begun = True
        self.computed_at = time.monotonic()
        if not self._is_in_backward:
            self._is_in_backward, self._has_ended = True, False
            after_backward(self._on_end)

    def _on_end(self) -> None:
        self._is_in_backward, self._has_ended = False, True


class _NoGradients(torch.autograd.Function):
    """Function of parameters, with undefined gradients."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.count = len(parameters)
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[None, ...]:
        return (None,) * int(ctx.count)


def backward_without_item(
    model: DistributedDataParallel, parameters: list[torch.nn.Parameter]
) -> None:
    """Sums the gradients of the parameters over ranks as they are, missing ones as 0.

    A forward and a backward of the model do the same around those of its module.
    """
    if not model._lazy_init_ran:
        model._lazy_init()  # type: ignore[no-untyped-call]
    with torch.enable_grad():
        model.reducer.prepare_for_forward()
        if model.reducer._rebuild_buckets():
            model._has_rebuilt_buckets = True
        model.require_forward_param_sync = True
        model.reducer.prepare_for_backward([])
        _NoGradients.apply(*parameters).backward()
