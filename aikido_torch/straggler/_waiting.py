# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Compares skipping with the progress that waiting for all ranks would have made."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Waiting"]

_FEWEST_OPERATIONS = 50
_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Waiting:
    """Time of the calls in which this rank owned a shard, and the same under WaitAll.

    Each owner knows the delays of all ranks for its own shards only, so another rank
    may have somewhat other figures.

    Attributes:
        operations: number of these calls whose end is known.
        contributed: the part of all contributions that is in their results.
        seconds: seconds that they took.
        seconds_of_wait_all: estimated seconds that they would have taken under WaitAll.
    """

    operations: int
    contributed: float
    seconds: float
    seconds_of_wait_all: float

    @classmethod
    def of(cls, counters: Mapping[str, object]) -> "Waiting":
        """Makes the comparison from the counters of a group."""

        def value(name: str) -> int:
            return int(str(counters[f"replayed_{name}"]))

        return cls(
            value("operations"),
            value("bytes_in") / max(value("bytes"), 1),
            value("us") / 1e6,
            value("wait_all_us") / 1e6,
        )

    @property
    def gain(self) -> float | None:
        """Progress with skipping divided by progress with WaitAll, minus 1.

        None if too few operations are known, or if this rank owns no shards.
        """
        if self.operations < _FEWEST_OPERATIONS or 0 in (
            self.seconds,
            self.contributed,
        ):
            return None
        return self.contributed * self.seconds_of_wait_all / self.seconds - 1

    def line(self) -> str | None:
        """Sentence for the report; None if the gain is not known or close to zero."""
        if self.gain is None or abs(self.gain) < _LEAST_GAIN:
            return None
        seen = f"by the {self.operations} calls of which this rank closed a shard"
        if self.gain > 0:
            return f"Skipping gained {self.gain:.0%} against waiting for all, {seen}."
        faster = 1 / (1 + self.gain) - 1
        return (
            f"Waiting would have been {faster:.0%} faster, {seen}: give WaitAll(), or "
            "a longer floor_ms."
        )
