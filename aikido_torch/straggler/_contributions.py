# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Counts which part of each rank's contributions is in the results of calls."""

from dataclasses import dataclass, field

from aikido_torch import _C

__all__ = ["Contributions"]


@dataclass
class Contributions:
    """Contributions of each rank, added up over the calls of a step or of some seconds.

    A contribution of a backup that stands in for a rank counts as one of that rank.

    Attributes:
        num_ranks: ranks whose contributions make a full result; 0 before the first
            call that may skip. With backups these are the primaries, which come first.
        num_elements: sum of the numbers of elements of all results.
        missing: rank to the number of elements without its contribution.
    """

    num_ranks: int = 0
    num_elements: int = 0
    missing: dict[int, float] = field(default_factory=dict)

    def add(self, outcome: _C.Outcome, num_elements: int = 1) -> None:
        """Adds a finished call with a result of `num_elements` elements."""
        self.num_elements += num_elements
        skipped = outcome.skipped
        ranks = len(outcome.contributors) + len(skipped)
        if ranks:
            self.num_ranks = min(ranks, self.num_ranks or ranks)
        if skipped:
            shards = [(s.num_elements, s.contributors) for s in outcome.shards]
            total = max(sum(n for n, _ in shards), 1)
            for rank in skipped:
                present = sum(n for n, ranks in shards if rank in ranks)
                missing = num_elements * (1 - present / total)
                self.missing[rank] = self.missing.get(rank, 0) + missing

    def share_of(self, rank: int) -> float:
        """Share of the elements with the contribution of `rank`; 1 without calls."""
        return 1 - self.missing.get(rank, 0) / max(self.num_elements, 1)
