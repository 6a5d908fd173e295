# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The part of a training step that the user's functions do."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from aikido_torch.ddp._buckets import ModelBuckets
from aikido_torch.ddp._step_audit import StepAudit

__all__ = ["UserStep"]


@dataclass(frozen=True)
class UserStep:
    """The arguments of `register` that say what the loop does with gradients.

    Attributes:
        optimizer: the optimizer of the loop.
        apply: does what the loop does between backward and the next zero_grad.
        after_step: called after `apply`, for example a scheduler; None: nothing.
    """

    optimizer: torch.optim.Optimizer
    apply: Callable[[], object]
    after_step: Callable[[], object] | None

    def replay(self, buckets: ModelBuckets, audit: StepAudit) -> None:
        """Does one step with the sums that the buckets hold, as `update`, and calls
        `after_step`.
        """
        self.update(buckets, audit)
        if self.after_step is not None:
            self.after_step()

    def update(self, buckets: ModelBuckets, audit: StepAudit) -> None:
        """Applies the sums that the buckets hold.

        The gradients of this rank are the same before and after it.

        Args:
            buckets: their sums are `.grad` while `apply` runs.
            audit: checks that `apply` steps only `optimizer`.
        """
        groups = self.optimizer.param_groups
        gradients = buckets.gradients(others=[p for g in groups for p in g["params"]])
        with gradients, audit.replaying():
            self.apply()
