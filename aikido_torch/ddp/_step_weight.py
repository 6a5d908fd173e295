# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Weight of the gradients of one rank in a step (`handle.weight`)."""

from aikido_torch import _C
from aikido_torch._weights import weight_of
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, Policy

__all__ = ["StepWeight"]


class StepWeight:
    """Weight of one handle. For the training thread only.

    A call must have a weight on all ranks or on none. So the first steps decide for all
    steps, also for those that `catch_up` replays.

    Args:
        kept: keeps the weight; the hook of a quiet step reads it without Python.
        policy: of the handle.
        carries: True if late gradients are carried.
    """

    def __init__(
        self, kept: _C.StepWeight, policy: Policy, *, carries: bool = False
    ) -> None:
        self._kept = kept
        self._policy = policy
        self._carries = carries

    @property
    def value(self) -> float:
        """The weight of the present step; 1.0 without weights."""
        weight = self._kept.value
        return 1.0 if weight is None else weight

    def set(self, weight: object, *, may_begin: bool) -> None:
        """Sets the weight of the present step.

        Args:
            weight: a number from 0 on.
            may_begin: True if the steps so far may have had no weight.

        Raises:
            ConfigError: it is no weight, or the steps have no weights.
        """
        if why_not := _why_not(self._policy, self._carries):
            raise ConfigError(f"weight: {why_not}")
        if self._kept.value is None and not may_begin:
            raise ConfigError(
                f"weight is {weight!r}, and earlier steps had no weight: set it before "
                "the first backward, on all ranks (1.0 where nothing is known yet)."
            )
        self._kept.set(weight_of("weight", weight))


def _why_not(policy: Policy, carries: bool) -> str:
    if isinstance(policy, ActiveBackup):
        return (
            "a backup does not know the weight of the rank that it stands in for; "
            "register the model with SkipStraggler to use weights."
        )
    if getattr(policy, "divisor", "contributors") == "world":
        return (
            'divisor="world" divides by the number of ranks, and the weights of '
            'missing ranks are not known; use divisor="contributors".'
        )
    if carries:
        return (
            "a carried gradient would count with the weight of a later step; register "
            'the model with late="drop" to use weights.'
        )
    return ""
