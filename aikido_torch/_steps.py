# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Hooks of an optimizer's step that are called once per step.

Some code does a step in pieces, and torch then calls its hooks for each piece. Hooks of
this class ignore the pieces. The code that does the pieces calls them for the whole
step.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch

__all__ = ["StepHook", "in_pieces", "tell_passed", "telling"]

# Optimizers that are doing a piece of a step now, by identity.
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
    """Calls the hooks around this scope, although the optimizer does the step later."""
    for hook in [*optimizer._optimizer_step_pre_hooks.values()]:
        if isinstance(hook, StepHook):
            hook(optimizer)
    yield
    tell_passed(optimizer)


def tell_passed(optimizer: torch.optim.Optimizer) -> None:
    """Calls the hooks after a step that other ranks did without this optimizer."""
    for hook in [*optimizer._optimizer_step_post_hooks.values()]:
        if isinstance(hook, StepHook):
            hook(optimizer)
