# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Progress of a training: steps per second, and the share of contributions in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aikido_torch.errors import ConfigError

if TYPE_CHECKING:
    from aikido_torch.straggler._steps import StepCounters

__all__ = ["BatchSize", "Progress", "progress_of"]

# Samples of one rank in one step: one number for all ranks, or a list by rank.
BatchSize = int | Sequence[int]

_MOST_NAMED = 8
_FULL = 0.9995  # printed as 100.0 %


@dataclass(frozen=True)
class Progress:
    """Progress over some steps.

    Attributes:
        steps_per_second: measured by the clock of this rank, including pauses of its
            training loop.
        shares: by rank: the part of the rank's contributions that is in the results.
    """

    steps_per_second: float
    shares: tuple[float, ...]

    @property
    def share(self) -> float:
        """The part of all contributions that is in the results."""
        return sum(self.shares) / len(self.shares)

    @property
    def full_steps_per_second(self) -> float:
        """Share times steps per second."""
        return self.share * self.steps_per_second

    def samples_per_second(self, batch_size: BatchSize) -> float:
        """Samples per second whose gradients are in the results.

        Raises:
            ConfigError: `batch_size` does not have one number for each rank.
        """
        sizes = _by_rank(batch_size, len(self.shares))
        in_results = sum(s * n for s, n in zip(self.shares, sizes, strict=True))
        return self.steps_per_second * in_results

    def lines(self, batch_size: BatchSize | None = None) -> list[str]:
        """Sentences for the beginning of the report."""
        progress = f"{self.full_steps_per_second:.3g} full steps/s"
        if batch_size is not None:
            samples = self.samples_per_second(batch_size)
            progress += f", {_rounded(samples)} samples/s"
        lines = [
            f"{self.steps_per_second:.3g} steps/s with {self.share:.1%} of all "
            f"contributions: progress {progress}."
        ]
        by_share = sorted(range(len(self.shares)), key=lambda rank: self.shares[rank])
        named = [r for r in by_share if self.shares[r] < _FULL][:_MOST_NAMED]
        if named:
            told = [f"rank {rank} {self.shares[rank]:.1%}" for rank in named]
            if others := by_share[len(named) :]:
                is_all = self.shares[others[0]] >= _FULL
                least = "" if is_all else "at least "
                told.append(f"others {least}{self.shares[others[0]]:.1%}")
            lines.append(f"Contributions by rank: {', '.join(told)}.")
        return lines


def progress_of(
    steps: "Sequence[StepCounters]", place: tuple[int, int] | None = None
) -> Progress | None:
    """Computes the progress over `steps`, oldest first; all steps have equal weight.

    Args:
        steps: steps of one rank. If the rank got a step by copying a state, the results
            of that step are unknown; the step then only lowers the share of this rank.
        place: the rank and the size of its group; None if not known.

    Returns:
        None if the times or the results of fewer than two steps are known.
    """
    known = [s.contributions for s in steps if s.num_calls]
    times = [s.ended_at for s in steps if s.ended_at is not None]
    if len(known) < 2 or len(times) < 2 or times[-1] <= times[0]:
        return None
    rank, size = place or (0, 0)
    counts = [each.num_ranks for each in known if each.num_ranks]
    num_ranks = min(counts, default=size)
    if num_ranks == 0:
        return None
    sums = [sum(each.share_of(r) for each in known) for r in range(num_ranks)]
    shares = [total / len(known) for total in sums]
    if place is not None and rank < num_ranks:
        num_copied = sum(s.way == "copied" and s.num_calls == 0 for s in steps)
        shares[rank] = sums[rank] / (len(known) + num_copied)
    return Progress((len(times) - 1) / (times[-1] - times[0]), tuple(shares))


def _by_rank(batch_size: BatchSize, num_ranks: int) -> Sequence[int]:
    sizes = [batch_size] * num_ranks if isinstance(batch_size, int) else batch_size
    if len(sizes) < num_ranks:
        raise ConfigError(
            f"batch_size has {len(sizes)} numbers, but {num_ranks} ranks contribute; "
            "give one number for all ranks, or one for each rank."
        )
    if any(not isinstance(size, int) or size < 0 for size in sizes):
        raise ConfigError(
            f"batch_size is {batch_size!r}; give the samples of one rank in one step, "
            "a whole number from 0 on, or one for each rank."
        )
    return sizes[:num_ranks]


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
