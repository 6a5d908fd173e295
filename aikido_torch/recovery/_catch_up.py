# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The result of `Handle.catch_up`."""

import functools
from dataclasses import dataclass

__all__ = ["ALL_TAKEN", "CatchUp"]


@functools.total_ordering
@dataclass(frozen=True, kw_only=True, eq=False)
class CatchUp:
    """Result of `catch_up`: the number of steps that this rank went forward, and how.

    It counts as its number of steps in `step += handle.catch_up()`, other sums and
    products, `int(...)`, comparisons with numbers, and as a condition.

    Attributes:
        steps_replayed: steps that the optimizer did on gradients committed by the
            others.
        steps_copied: steps skipped through by a copy of the state of another rank.
        state_copied_from: the rank whose state was copied; None if there was no copy.
        batches_to_skip: number of batches that the data loader has to skip.
    """

    steps_replayed: int = 0
    steps_copied: int = 0
    state_copied_from: int | None = None
    batches_to_skip: int = 0

    @property
    def steps(self) -> int:
        """Steps that this rank went forward, 0 if it had missed no step."""
        return self.steps_replayed + self.steps_copied

    def __index__(self) -> int:
        return self.steps

    def __add__(self, other: int) -> int:
        return self.steps + other

    def __sub__(self, other: int) -> int:
        return self.steps - other

    def __rsub__(self, other: int) -> int:
        return other - self.steps

    def __mul__(self, other: int) -> int:
        return self.steps * other

    __radd__ = __add__
    __rmul__ = __mul__

    # Two results with the same number of steps are equal, as each equals the number.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, CatchUp):
            other = other.steps
        return self.steps == other

    def __lt__(self, other: "int | CatchUp") -> bool:
        return self.steps < (other.steps if isinstance(other, CatchUp) else other)

    def __hash__(self) -> int:
        return hash(self.steps)

    def __bool__(self) -> bool:
        return self.steps > 0


# The result in nearly every step: this rank had missed no step.
ALL_TAKEN = CatchUp()
