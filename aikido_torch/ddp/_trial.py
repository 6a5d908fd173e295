# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Whether a plan is faster than plain buckets, by trying both. Pure.

A plan is simulated, and a simulation may be wrong. It also knows nothing of the time
that hooks and steps in parts take on each rank. So each new plan and plain buckets take
turns of some iterations each, twice: a machine that gets slower meanwhile slows down
both. The plan stays only if it is faster by more than the noise of such a comparison. A
plan whose prediction is off has to be faster by more.
"""

import statistics
from dataclasses import replace

from aikido_torch.ddp._layout import Layout

__all__ = ["Trial"]

_TURNS = 4  # the plan begins, plain buckets have each second one
_ITERATIONS = 4  # of a turn, after one that changes over
_OFF = 0.1  # share by which an iteration may take longer than predicted
# Shares of the time of plain buckets that a plan may take, and one that is off.
_FASTER, _CLEARLY = 0.98, 0.95
# Of all pairs of an iteration of either side the plan is faster in at least this share.
# Of two sides that are alike 1 in 20 is (Mann and Whitney 1947, 8 of each).
_WINS = 0.75


class Trial:
    """Of one plan after another; the same calls are made on all ranks.

    Attributes:
        verdict: a sentence on the last plan that was tried; empty before.
    """

    def __init__(self) -> None:
        self._plan: Layout | None = None  # under trial
        self._plain: Layout | None = None
        self._rejected: Layout | None = None
        self._taken: dict[bool, list[float]] = {}
        self._turn = 0
        self._num_since = 0
        self.verdict = ""

    @property
    def is_on(self) -> bool:
        """A plan is under trial."""
        return self._plan is not None

    @property
    def is_due(self) -> bool:
        """`next` is to be asked, on all ranks."""
        return self.is_on and self._num_since > _ITERATIONS

    @property
    def is_choice(self) -> bool:
        """`next` chooses by what this rank has measured: rank 0 chooses for all."""
        return self._turn % 2 == 1

    def begin(self, plan: Layout, plain: Layout) -> None:
        """The plan is adopted from now on."""
        self._plan = None if plan.sends_as(plain) else plan
        self._plain = plain
        self._taken = {False: [], True: []}
        self._turn = self._num_since = 0

    def has_rejected(self, plan: Layout) -> bool:
        """It was no faster than plain buckets, and nothing has changed since."""
        return self._rejected is not None and plan.sends_as(self._rejected)

    def forget(self) -> None:
        """The links have changed: a rejected plan may be tried again."""
        self._rejected = None

    def add(self, seconds: float) -> None:
        """An iteration has taken so long. The first of a turn counts for neither."""
        self._num_since += 1
        if self.is_on and self._num_since > 1:
            self._taken[self.is_choice].append(seconds)

    def next(self) -> Layout:
        """What is adopted now. Requires: `is_due`."""
        assert self._plan is not None
        assert self._plain is not None
        if not self.is_choice:
            # Nobody has simulated plain buckets: until they are measured, as the plan.
            return replace(self._plain, predicted_s=self._plan.predicted_s)
        is_last = self._turn == _TURNS - 1
        # A plan that is behind at half-time is given up.
        if self._is_plan_better if is_last else self._wins >= 0.5:
            return self._plan
        return replace(self._plain, predicted_s=self._middle_s(True))

    def adopted(self, layout: Layout) -> None:
        """This is adopted on all ranks; at a choice it is that of rank 0."""
        assert self._plan is not None
        assert self._plain is not None
        self._num_since = 0
        is_plain = layout.sends_as(self._plain)
        is_over = self.is_choice and (is_plain or self._turn == _TURNS - 1)
        if not is_over:
            self._turn += 1
            return
        plan_s, plain_s = (self._middle_s(is_plain) for is_plain in (False, True))
        self._rejected = self._plan if is_plain else None
        used = "plain buckets are" if is_plain else "the plan is"
        self.verdict = (
            f"the plan took {1e3 * plan_s:.1f} ms and plain buckets took "
            f"{1e3 * plain_s:.1f} ms: {used} used"
        )
        self._plan = None

    @property
    def _wins(self) -> float:
        """Share of the pairs of an iteration of either side that the plan wins."""
        pairs = [(a, b) for a in self._taken[False] for b in self._taken[True]]
        return sum(a < b for a, b in pairs) / len(pairs)

    @property
    def _is_plan_better(self) -> bool:
        assert self._plan is not None
        plan_s, plain_s = self._middle_s(False), self._middle_s(True)
        predicted_s = self._plan.predicted_s
        is_off = predicted_s is not None and plan_s > (1 + _OFF) * predicted_s
        is_faster = plan_s <= (_CLEARLY if is_off else _FASTER) * plain_s
        return is_faster and self._wins >= _WINS

    def _middle_s(self, is_plain: bool) -> float:
        """Mean without the shortest and the longest."""
        ordered = sorted(self._taken[is_plain])
        return statistics.mean(ordered[1:-1] or ordered)
