# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Hooks of an optimizer's step that are called once per step.

If a step is done in pieces, torch calls its hooks for each piece. Hooks of this class
ignore the pieces; the code that does the pieces tells them of the whole step.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch

__all__ = ["StepHook", "in_pieces", "tell_passed", "telling"]

# Optimizers that step a piece at this moment, by identity.
_in_pieces: set[int] = set()


class StepHook:
    """For register_step_pre_hook and register_step_post_hook.

    Args:
        call: function to call before or after each step.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __call__(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if id(optimizer) not in _in_pieces:
            self._call()


@contextlib.contextmanager
def in_pieces(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Steps of the optimizer in this scope are pieces, not whole steps."""
    _in_pieces.add(id(optimizer))
    try:
        yield
    finally:
        _in_pieces.discard(id(optimizer))


@contextlib.contextmanager
def telling(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Scope of a step for the user, although the optimizer does it later."""
    for hook in [*optimizer._optimizer_step_pre_hooks.values()]:
        if isinstance(hook, StepHook):
            hook(optimizer)
    yield
    tell_passed(optimizer)


def tell_passed(optimizer: torch.optim.Optimizer) -> None:
    """A step is over that the optimizer did not do: others did it."""
    for hook in [*optimizer._optimizer_step_post_hooks.values()]:
        if isinstance(hook, StepHook):
            hook(optimizer)
