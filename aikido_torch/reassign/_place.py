# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Place of a loop in its epochs, counted in steps. Pure.

A rank that has missed steps moves on with them. So it may come to the end of an epoch,
and into the next epoch, without a step of its own.
"""

__all__ = ["LoopPlace"]


class LoopPlace:
    """Epoch and step of the loop of one rank.

    The argument `now` of the methods is the number of steps that have passed through
    this rank since the start.

    Args:
        steps_per_epoch: steps of a whole epoch.

    Attributes:
        step: steps of the epoch before the present one.
    """

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch
        self._epoch = self.step = self._first_step = 0
        self._next_epoch: int | None = None
        self._has_begun = False

    @property
    def epoch(self) -> int:
        """Epoch of the present iteration, or the epoch that was set for the next."""
        return self._epoch if self._next_epoch is None else self._next_epoch

    @property
    def is_at_end(self) -> bool:
        """True if the epoch has no more steps."""
        return self.step >= self._steps_per_epoch

    def set_end(self, steps: int) -> None:
        """Sets the number of steps of the present epoch."""
        self._steps_per_epoch = steps

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next `begin`. A resumed epoch is continued."""
        self._next_epoch = epoch

    def begin(self, now: int) -> None:
        """Begins an iteration: of the epoch that was set, of the next one otherwise.

        All ranks begin an epoch at the same step, also a rank that has missed the end
        of the epoch before. An epoch that the loop has left early ends at `now`, so all
        ranks must leave it at the same step.
        """
        if not self._has_begun and self._next_epoch in (None, self._epoch):
            self._first_step = now - self.step
        else:
            self._first_step = self._end(now) if self._has_begun else now
            self._epoch += 1
            self.step = 0
        if self._next_epoch is not None:
            self._epoch, self._next_epoch = self._next_epoch, None
        self._has_begun = True

    def _end(self, now: int) -> int:
        return min(now, self._first_step + self._steps_per_epoch)

    def pass_step(self) -> None:
        """The loop has done its step."""
        self.step += 1

    def move_to(self, now: int) -> range:
        """Moves to the present step. Returns the missed steps of the epoch."""
        at = self.steps_before(now)
        missed = range(self.step, at)
        self.step = max(self.step, at)
        return missed

    def number_of(self, step: int) -> int:
        """Number of step `step` of the present epoch, counted since the start."""
        return self._first_step + step

    def steps_before(self, now: int) -> int:
        """Steps of the present epoch that have passed."""
        return min(now - self._first_step, self._steps_per_epoch)

    def state(self, now: int) -> tuple[int, int]:
        """Epoch, and number of its steps that have passed."""
        return self._epoch, self.steps_before(now) if self._has_begun else self.step

    def resume(self, epoch: int, step: int) -> None:
        """Takes the place of an earlier training."""
        self._epoch, self.step = epoch, step
        self._next_epoch, self._has_begun = None, False
