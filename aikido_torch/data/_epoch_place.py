# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Place of one rank's loader in an epoch, counted in batches and steps. Pure."""

__all__ = ["EpochPlace"]


class EpochPlace:
    """Steps of the present epoch, and the batches that the loader has taken.

    Args:
        num_batches: batches of one epoch on each rank.
        batches_per_step: batches of a step; the last step of an epoch may have fewer.
        lookahead: batches that the loader takes ahead of the step that uses them.

    Attributes:
        epoch: the epoch that was begun last.
        first_step: the first step of that epoch.
        num_taken: batches of that epoch that the loader has taken.
        given_first_step: first step of the next epoch, as the user gave it; None: it
            follows from the other values.
        own_steps: number after the last step that this rank did itself.
    """

    def __init__(
        self, *, num_batches: int, batches_per_step: int, lookahead: int
    ) -> None:
        self.num_batches = num_batches
        self._batches_per_step = batches_per_step
        self._lookahead = lookahead
        self.epoch = self.first_step = self.num_taken = self.own_steps = 0
        self.given_first_step: int | None = None
        self._resumed_at = 0  # earlier steps were done before the state was loaded
        self._resumes = False  # the next `begin` resumes the epoch

    def on_own_step(self, step: int) -> None:
        """This rank has done the step itself."""
        self.own_steps = max(self.own_steps, step + 1)

    def take_first_step(self, epoch: int, now: int) -> int:
        """The first step of an epoch that begins now. A given one is used once.

        Args:
            epoch: number of the epoch.
            now: number of finished steps.
        """
        if self.given_first_step is not None:
            first, self.given_first_step = self.given_first_step, None
            return first
        if self._resumes and epoch == self.epoch:
            return self.first_step
        if self.num_taken == self.num_batches:
            # The end of the epoch is above `now` if the loader was at its end but the
            # loop was not. It is below `now` if this rank must still skip the steps
            # that it missed.
            return min(now, self.first_step + self._steps_per_epoch())
        return now

    def begin(self, epoch: int, first_step: int) -> None:
        """The loader begins the epoch, with the first batch that was not done."""
        self.epoch, self.first_step = epoch, first_step
        self.num_taken = self._batches_before(self._resumed_at)
        self._resumes = False

    def resume(self, epoch: int, *, first_step: int, steps: int) -> None:
        """Takes the place of an earlier training that has finished `steps` steps."""
        self.epoch, self.first_step = epoch, first_step
        self.given_first_step = None
        self.own_steps = 0
        self._resumed_at = steps
        self.num_taken = self._batches_before(steps)
        self._resumes = True

    def batches_in(self, first: int, end: int) -> int:
        """Number of batches from step `first` to before `end`, across epochs too."""
        return self._batches_up_to(end) - self._batches_up_to(first)

    def is_at(self, step: int) -> bool:
        """True if the loader has given the batches of that step, and no later ones."""
        return self.num_taken in self.numbers_at(step)

    def numbers_at(self, step: int) -> range:
        """Valid values of `num_taken` at the beginning of a step; empty in another
        epoch.
        """
        per_step, all_batches = self._batches_per_step, self.num_batches
        before = (step - self.first_step) * per_step
        if not 0 <= before < all_batches:
            return range(0)
        least = min(before + 1 + self._lookahead, all_batches)
        most = min(before + per_step + self._lookahead, all_batches)
        return range(least, most + 1)

    def _batches_before(self, step: int) -> int:
        """Number of batches of the epoch in the steps before that step."""
        batches = (step - self.first_step) * self._batches_per_step
        return min(max(batches, 0), self.num_batches)

    def _batches_up_to(self, step: int) -> int:
        epochs, steps = divmod(step - self.first_step, self._steps_per_epoch())
        of_last = min(steps * self._batches_per_step, self.num_batches)
        return epochs * self.num_batches + of_last

    def _steps_per_epoch(self) -> int:
        return -(-self.num_batches // self._batches_per_step)
