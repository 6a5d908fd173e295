# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Weight of the gradients of one rank in a step (`handle.weight`)."""

from aikido_torch import _C
from aikido_torch._weights import weight_of
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, Policy

__all__ = ["StepWeight"]


class StepWeight:
    """Weight of one handle, which the quiet steps keep. For the training thread only.

    A call must have a weight on all ranks or on none. So the first steps decide for all
    steps, also for those that `catch_up` replays.

    Args:
        quiet: keeps the weight, because quiet steps need it without Python.
        policy: of the handle.
        carries: True if late gradients are carried.
    """

    def __init__(
        self, quiet: _C.QuietSteps, policy: Policy, *, carries: bool = False
    ) -> None:
        self._quiet = quiet
        self._policy = policy
        self._carries = carries

    @property
    def value(self) -> float:
        """The weight of the present step; 1.0 without weights."""
        weight = self._quiet.weight
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
        if self._quiet.weight is None and not may_begin:
            raise ConfigError(
                f"weight is {weight!r}, and earlier steps had no weight: set it before "
                "the first backward, on all ranks (1.0 where nothing is known yet)."
            )
        value = weight_of("weight", weight)
        _C.check_weight(value)
        self._quiet.set_weight(value)

    def end_step(self) -> None:
        """The hook has started all buckets of the step."""
        if self._quiet.weight is not None:
            self._quiet.set_weight(1.0)


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
