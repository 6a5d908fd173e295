# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Replacement of `optimizer.step` of one optimizer."""

import types
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["StepOverride"]

Closure = Callable[[], Any]


class StepOverride:
    """A function that is called instead of `optimizer.step`, until `remove`.

    Args:
        optimizer: the optimizer; it is not changed before `install`.

    Attributes:
        before: `optimizer.step` as it was at construction.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self.before: Callable[..., Any] = optimizer.step
        self._is_on_instance = "step" in vars(optimizer)
        self._method: types.MethodType | None = None
        self._is_removed = False

    def install(self, step: Callable[[Closure | None], Any]) -> None:
        """Has `step` called, with the closure that the loop passes."""

        def call(_: object, closure: Closure | None = None) -> Any:
            # A scheduler may have wrapped this function permanently.
            return self.before(closure) if self._is_removed else step(closure)

        # A scheduler that wrapped the earlier function looks for this attribute.
        if hasattr(self.before, "_wrapped_by_lr_sched"):
            call._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        self._method = types.MethodType(call, self._optimizer)
        self._optimizer.step = self._method  # type: ignore[method-assign]

    def remove(self) -> None:
        """Restores the earlier function, unless another one has replaced `step`."""
        self._is_removed = True
        if self._optimizer.step is not self._method:
            return
        if self._is_on_instance:
            self._optimizer.step = self.before  # type: ignore[method-assign]
        else:
            del self._optimizer.step
