# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Majority decision about which ranks differ, from the digests of all ranks. Pure."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Ends", "VoteResult", "Votes"]


@dataclass(frozen=True)
class VoteResult:
    """Result of comparing the digests of one step.

    Attributes:
        step: step of the digests.
        agreed: ranks with the digest of the majority, ascending.
        differing: ranks with another digest, ascending.
    """

    step: int
    agreed: tuple[int, ...]
    differing: tuple[int, ...]


class Votes:
    """The received digests. Each rank has its own object, and all ranks decide equally.

    If no digest has a majority, the most frequent one counts. If two are equally
    frequent, the digest of the lowest rank counts.

    Args:
        own: this rank.
        size: number of ranks.
    """

    def __init__(self, own: int, size: int) -> None:
        self._own, self._size = own, size
        self._by_step: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._decided = -1  # the last step with a verdict

    def add(self, rank: int, step: int, digest: str) -> None:
        """Adds the digest of `rank` before step `step`."""
        if step > self._decided:
            self._by_step[step][rank] = digest

    @property
    def are_open(self) -> bool:
        """True if there are votes on a step without a verdict."""
        return bool(self._by_step)

    def decide(self) -> list[VoteResult]:
        """Verdicts on the steps that need no more votes, each once, by step.

        A step needs this rank's vote and one of three things: the votes of all others,
        equal votes of more than half of all ranks, or a later vote of this rank. In the
        last case the missing votes are those of late ranks, and do not count.
        """
        last = max((s for s, v in self._by_step.items() if self._own in v), default=-1)
        found = []
        for step in sorted(s for s in self._by_step if s <= last):
            votes = self._by_step[step]
            if step < last or self._is_enough(votes):
                found.append(_verdict(step, votes))
                self._decided = step
                del self._by_step[step]
        return [v for v in found if self._own in (*v.agreed, *v.differing)]

    def _is_enough(self, votes: dict[int, str]) -> bool:
        most = max([*votes.values()].count(digest) for digest in votes.values())
        return len(votes) == self._size or 2 * most > self._size


class Ends:
    """The digests after the last step; each rank has sent one or several.

    The last digest of a rank counts. A rank that does not compare its state sends an
    empty digest.

    Args:
        own: this rank.
        size: number of ranks.
    """

    def __init__(self, own: int, size: int) -> None:
        self._own, self._size = own, size
        self._ends: dict[int, tuple[int, str]] = {}

    def add(self, rank: int, step: int, digest: str) -> None:
        """Adds the digest of `rank` after `step` steps."""
        self._ends[rank] = step, digest

    def awaited(self, gone: Collection[int]) -> list[int]:
        """Ranks without a digest, except ranks that have left."""
        return [r for r in range(self._size) if r not in self._ends and r not in gone]

    def ahead(self) -> tuple[int, list[int]]:
        """The highest number of steps among the ranks, and the ranks with it."""
        compared = {rank: step for rank, (step, digest) in self._ends.items() if digest}
        most = max(compared.values(), default=-1)
        return most, sorted(rank for rank in compared if compared[rank] == most)

    def verdict(self, gone: Collection[int]) -> VoteResult | None:
        """Result of the vote on the ranks with the most steps.

        It is clear if more than half of the ranks that have not left have equal
        digests, or if all digests have arrived.

        Returns:
            None if this rank is not among those ranks, or the verdict is not clear yet.
        """
        most, ranks = self.ahead()
        if self._own not in ranks:
            return None
        verdict = _verdict(most, {rank: self._ends[rank][1] for rank in ranks})
        num_present = self._size - len(set(gone) - set(self._ends))
        is_clear = 2 * len(verdict.agreed) > num_present or not self.awaited(gone)
        return verdict if is_clear else None


def _verdict(step: int, votes: dict[int, str]) -> VoteResult:
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for rank in sorted(votes):
        ranks[votes[rank]].append(rank)
    # max() takes the first of several that are equally long.
    agreed = max(ranks.values(), key=len)
    differing = [rank for rank in sorted(votes) if rank not in agreed]
    return VoteResult(step, tuple(agreed), tuple(differing))
