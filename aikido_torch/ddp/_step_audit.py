# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What a training loop does in a step and `register` was not told of.

A step that a late rank replays has the optimizer's step in it and nothing else, so that
rank would go on with other parameters than the others, without a word. Both can be seen
on all ranks and before anybody is late.
"""

import warnings

import torch

from aikido_torch.ddp._backward import after_backward
from aikido_torch.ddp._hook import Hook

__all__ = ["Untold"]

# Steps in which gradients are looked at, which costs about 0.2 us per parameter each.
_LOOKED_AT = 10


class Untold:
    """Warns the caller once of each. For the thread that trains.

    Args:
        optimizer: of the loop.
        gradients: look whether they change between the backward and the step.
        schedule: look for a scheduler.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, gradients: bool, schedule: bool
    ) -> None:
        self._optimizer = optimizer
        self._has_to_look_for_schedule = schedule
        self._steps_left = _LOOKED_AT if gradients else 0
        self._noted: list[object] | None = None
        if gradients:
            optimizer.register_step_pre_hook(Hook(self._on_step))

    def on_backward(self) -> None:
        """In the last hook of a backward: its gradients are noted when it is over."""
        if self._steps_left > 0:
            after_backward(self._note)

    def on_catch_up(self) -> None:
        """Warns if a scheduler changes the optimizer.

        What has been noted of a step that the loop left out is forgotten.
        """
        self._noted = None
        if not self._has_to_look_for_schedule:
            return
        if not hasattr(self._optimizer.step, "_wrapped_by_lr_sched"):
            return
        self._has_to_look_for_schedule = False
        warnings.warn(
            "The optimizer has a learning rate scheduler of which "
            "aikido_torch.ddp.register was not told. A step that is replayed or copied "
            "leaves it behind, and a late rank goes on with other parameters than "
            "others. Give register what your loop does in a step, and the scheduler: "
            'register(..., apply=..., state={"scheduler": scheduler}).',
            stacklevel=3,
        )

    def _note(self) -> None:
        self._noted = self._gradients()

    def _on_step(self, *_: object) -> None:
        noted, self._noted = self._noted, None
        if noted is None:  # replayed, or looked at for long enough
            return
        self._steps_left -= 1
        # A GradScaler gives an optimizer that is fused its scale to divide by.
        is_scaled = getattr(self._optimizer, "grad_scale", None) is not None
        if noted == self._gradients() and not is_scaled:
            return
        self._steps_left = 0
        warnings.warn(
            "Gradients change between the backward and the optimizer's step, as by "
            "clipping or by the unscaling of a GradScaler, and "
            "aikido_torch.ddp.register was not told. A step that is replayed leaves "
            "that out, and a late rank goes on with other parameters than others. "
            "Give register what your loop does in a step: register(..., apply=...).",
            stacklevel=4,
        )

    def _gradients(self) -> list[object]:
        """Which tensors they are, how often they were written to, and a value.

        A GradScaler writes to them without being counted, but to each of them.
        """
        parameters = [p for g in self._optimizer.param_groups for p in g["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        told: list[object] = [(id(g), g._version) for g in gradients]
        if gradients:
            smallest = min(gradients, key=torch.Tensor.numel)
            # As text, in which one nan is equal to another.
            told.append(repr(smallest.detach().flatten()[:1].tolist()))
        return told
