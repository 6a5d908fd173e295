# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The result of `Handle.catch_up`."""

__all__ = ["ALL_TAKEN", "CatchUp"]


class CatchUp(int):
    """Result of `catch_up`: the number of steps that this rank went forward, and how.

    Attributes:
        steps_replayed: steps that the optimizer did on gradients committed by the
            others.
        steps_copied: steps skipped through by a copy of the state of another rank.
        state_copied_from: the rank whose state was copied; None if there was no copy.
        batches_to_skip: number of batches that the data loader has to skip.
    """

    steps_replayed: int
    steps_copied: int
    state_copied_from: int | None
    batches_to_skip: int

    def __new__(
        cls,
        *,
        steps_replayed: int = 0,
        steps_copied: int = 0,
        state_copied_from: int | None = None,
        batches_to_skip: int = 0,
    ) -> "CatchUp":
        self = super().__new__(cls, steps_replayed + steps_copied)
        self.steps_replayed = steps_replayed
        self.steps_copied = steps_copied
        self.state_copied_from = state_copied_from
        self.batches_to_skip = batches_to_skip
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int | None]]:
        return (), dict(vars(self))

    def __repr__(self) -> str:
        return (
            f"CatchUp(steps_replayed={self.steps_replayed}, "
            f"steps_copied={self.steps_copied}, "
            f"state_copied_from={self.state_copied_from}, "
            f"batches_to_skip={self.batches_to_skip})"
        )


# The result in nearly every step: this rank had missed no step.
ALL_TAKEN = CatchUp()
