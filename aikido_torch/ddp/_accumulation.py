# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Counts of the batches whose gradients a loop accumulates for one step.

A late rank skips the batches of the steps that it missed, so it must know how many
batches each step has. Usually a step has `batches_per_step` batches, as passed to
`register`. The last step of an epoch has fewer if the batches do not divide evenly.
Each rank tells the other ranks about such a short step before it contributes its own
gradients. Therefore the other ranks know the number before they receive the result of
the step.
"""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from aikido_torch._hook import Hook
from aikido_torch.errors import ConfigError

__all__ = ["Accumulation"]

_MOST_SHORT = 10_000  # Number of short steps that are remembered.


class Accumulation:
    """Batch counts of one handle. For the training thread only.

    Args:
        batches_per_step: the argument of `register`.
        first_step: number of the first step.

    Attributes:
        per_step: batches of a usual step.
    """

    def __init__(self, batches_per_step: int, *, first_step: int) -> None:
        self.per_step, self._first_step = batches_per_step, first_step
        self._held_back = self._given = 0  # forwards since the last step
        self._usual = 0  # forwards under no_sync in the first step
        self._short: dict[int, int] = {}
        self._counting: RemovableHandle | None = None

    def count_in(self, model: DistributedDataParallel) -> None:
        """Counts the forwards of `model`, unless each step is seen to have one."""
        hook = Hook(self.count, is_weak=True)
        self._counting = model.register_forward_pre_hook(hook)

    def count(self, model: DistributedDataParallel, _: object) -> None:
        """Hook before each forward. A forward without gradients belongs to no batch."""
        if torch.is_grad_enabled():
            self.on_forward(is_held_back=not model.require_backward_grad_sync)

    @property
    def is_plain(self) -> bool:
        """True if each step has one batch, so that no step can be short."""
        return self._usual == 0

    def on_forward(self, *, is_held_back: bool) -> None:
        """A forward of the model begins; `is_held_back` is True under no_sync()."""
        self._held_back += is_held_back
        self._given += not is_held_back

    def on_hook(self, step: int) -> int | None:
        """The backward of `step` reduces gradients.

        Returns:
            The number of batches of the step if it has fewer than usual, otherwise
            None.

        Raises:
            ConfigError: the first step has more batches than `register` was told.
        """
        held_back, given = self._held_back, self._given
        self._held_back = self._given = 0
        if step == self._first_step:
            self._check(held_back, given)
            self._usual = held_back
            if held_back == 0 and self._counting is not None:
                self._counting.remove()
        if held_back >= self._usual:
            return None
        batches = held_back * (self.per_step - 1) // self._usual + 1
        self.note_short(step, batches)
        return batches

    def _check(self, held_back: int, given: int) -> None:
        # Each batch has as many forwards as the last batch of the step.
        batches = held_back // max(1, given) + 1
        if batches > self.per_step:
            raise ConfigError(
                f"register: batches_per_step is {self.per_step}, but the loop runs "
                f"{held_back} forwards under no_sync() before the backward that ends "
                f"its first step, so it accumulates gradients of {batches} batches. "
                "catch_up() would tell a late rank to skip too few batches. Give "
                f"register(..., batches_per_step={batches})."
            )

    def note_short(self, step: int, batches: int) -> None:
        """Records that `step` has only `batches` batches, here or on another rank."""
        self._short[step] = batches
        if len(self._short) > _MOST_SHORT:
            del self._short[next(iter(self._short))]

    def missing(self, first: int, end: int) -> int:
        """Batches by which the steps `first` to `end` - 1 are short."""
        if end == first:
            return 0
        found = (count for step, count in self._short.items() if first <= step < end)
        return sum(self.per_step - count for count in found)
