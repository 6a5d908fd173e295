# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Watches the share of each rank's contributions in results of the last minute."""

from collections import deque
from collections.abc import Mapping

from aikido_torch import _C
from aikido_torch.straggler._contributions import Contributions
from aikido_torch.straggler._progress import Progress
from aikido_torch.straggler._waiting import Waiting

__all__ = ["ShareWatch"]

_LEAST_SHARE = 0.5
_LOW_FOR_S = 60.0
_PART_S = 10.0  # the minute is judged in parts of this length
_WINDOW_PARTS = 6


class _Part:
    """The calls of one part of the minute."""

    def __init__(self, begin: float, first_step: int) -> None:
        self.begin = begin
        self.first_step = first_step
        self.num_copied = 0
        self.contributions = Contributions()
        self.ranks_out: set[int] = set()  # excluded from the group in at least one call

    def shares(self, own_rank: int, size: int, num_steps: int) -> list[float]:
        """Shares by rank; empty if no call has ended."""
        tally = self.contributions
        if tally.num_elements == 0:
            return []
        num_ranks = tally.num_ranks or size  # 0: no call could skip a rank
        shares = [tally.share_of(rank) for rank in range(num_ranks)]
        if self.num_copied and own_rank < len(shares):
            shares[own_rank] *= 1 - self.num_copied / max(num_steps, self.num_copied)
        return shares


class ShareWatch:
    """The watch of one rank. Pure. For the training thread; any thread may read `last`.

    Note [a low share]
    The share of a rank is judged in parts of ten seconds, so that one long pause is not
    taken for a rank that is late all the time. When all parts of a minute were below
    one half, the rank itself and rank 0 get a sentence that names the rank, once. An
    excluded rank gets no such sentence: it is not late, and needs other remedies.

    Args:
        rank: this rank.
        size: number of ranks in its group.
        now: the time in seconds. All times of this class are of one clock.

    Attributes:
        last: progress of the last minute at the last `look`; None before the first part
            has ended.
    """

    def __init__(self, rank: int, size: int, now: float) -> None:
        self._rank, self._size = rank, size
        self._step = 0
        self._past: deque[tuple[_Part, list[float]]] = deque(maxlen=_WINDOW_PARTS)
        self._part = _Part(now, 0)
        self._low_since: dict[int, float] = {}
        self._named: set[int] = set()
        self.last: Progress | None = None

    @staticmethod
    def gain_of(counters: Mapping[str, object]) -> float | None:
        """`Waiting.gain` from the counters of the group; for any thread."""
        return Waiting.of(counters).gain

    def on_call(self, step: int, outcome: _C.Outcome, num_elements: int) -> None:
        """Adds a finished call of `step` with a result of `num_elements` elements."""
        self._step = max(self._step, step + 1)
        self._part.contributions.add(outcome, num_elements)
        if outcome.reason == "complete":  # all ranks of the view contributed
            self._part.ranks_out.update(outcome.skipped)

    def on_copied(self, step: int) -> None:
        """This rank got `step` by copying a state, without contributing to it."""
        self._step = max(self._step, step + 1)
        self._part.num_copied += 1

    def look(self, now: float) -> list[str]:
        """A sentence on each rank that was below one half for a minute, once."""
        part = self._part
        if now - part.begin < _PART_S:
            return []
        shares = part.shares(self._rank, self._size, self._step - part.first_step)
        self._part = _Part(now, self._step)
        self._past.append((part, shares))
        self._update_last(now)
        return [
            self._sentence(rank, share)
            for rank, share in enumerate(shares)
            if self._is_low(rank, share, part, now)
        ]

    def _is_low(self, rank: int, share: float, part: _Part, now: float) -> bool:
        if share >= _LEAST_SHARE or rank in part.ranks_out:
            self._low_since.pop(rank, None)
            return False
        since = self._low_since.setdefault(rank, part.begin)
        if now - since < _LOW_FOR_S or rank in self._named:
            return False
        self._named.add(rank)
        return self._rank in (0, rank)

    def _update_last(self, now: float) -> None:
        known = [shares for _, shares in self._past if shares]
        if known:
            first, _ = self._past[0]
            rate = (self._step - first.first_step) / (now - first.begin)
            means = [sum(each) / len(known) for each in zip(*known, strict=False)]
            self.last = Progress(rate, tuple(means))

    def _sentence(self, rank: int, share: float) -> str:
        who = f"Rank {rank} (this rank)" if rank == self._rank else f"Rank {rank}"
        return (
            f"{who} has had less than half of its contributions in the results for "
            f"{_LOW_FOR_S:.0f} s, lately {share:.0%}: the others do not wait for as "
            "long as it is late. Remedies: SkipStraggler(floor_ms=...) waits longer, "
            "WaitAll(rebalance=True) skips nobody, ActiveBackup(backups=1) has another "
            "rank stand in for it."
        )
