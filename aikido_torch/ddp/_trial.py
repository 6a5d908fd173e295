# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Test whether a plan is faster than plain buckets, by running both. Pure.

The predicted time of a plan comes from a simulation, which may be wrong. It does not
model the time of hooks and partial steps on each rank. So each new plan and plain
buckets take turns of some iterations each, twice: a machine that gets slower meanwhile
slows down both. The plan stays only if it is faster by more than the noise of such a
comparison. A plan whose prediction is wrong has to be faster by more.
"""

import statistics
from dataclasses import replace

from aikido_torch.ddp._layout import Layout

__all__ = ["Trial"]

_TURNS = 4  # the plan has the first and third turn, plain buckets the second and fourth
_ITERATIONS = 4  # iterations of a turn, after one that changes the layout
_OFF = 0.1  # relative error above which a prediction counts as wrong
# Largest share of the time of plain buckets that a plan may take, and that a plan with
# a wrong prediction may take.
_FASTER, _CLEARLY = 0.98, 0.95
# The plan must be faster in at least this share of all pairs of iterations, one of each
# side. Two equal sides reach it in 1 of 20 comparisons (rank-sum test: Mann and Whitney
# 1947, 8 of each).
_WINS = 0.75


class Trial:
    """The trials of one plan after another; all ranks make the same calls.

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
        """True while a plan is under trial."""
        return self._plan is not None

    @property
    def is_due(self) -> bool:
        """True if all ranks must call `next`."""
        return self.is_on and self._num_since > _ITERATIONS

    @property
    def is_choice(self) -> bool:
        """True if `next` chooses by measured times; the choice of rank 0 counts for
        all.
        """
        return self._turn % 2 == 1

    def begin(self, plan: Layout, plain: Layout) -> None:
        """Starts the trial of `plan`, which all ranks have adopted."""
        self._plan = None if plan.sends_as(plain) else plan
        self._plain = plain
        self._taken = {False: [], True: []}
        self._turn = self._num_since = 0

    def has_rejected(self, plan: Layout) -> bool:
        """True if the plan was not faster than plain buckets, and the links are the
        same since.
        """
        return self._rejected is not None and plan.sends_as(self._rejected)

    def forget(self) -> None:
        """Forgets the rejected plan, because the links have changed."""
        self._rejected = None

    def add(self, seconds: float) -> None:
        """Adds the time of an iteration. The first iteration of a turn is ignored."""
        self._num_since += 1
        if self.is_on and self._num_since > 1:
            self._taken[self.is_choice].append(seconds)

    def next(self) -> Layout:
        """The layout to adopt now. Requires: `is_due`."""
        assert self._plan is not None
        assert self._plain is not None
        if not self.is_choice:
            # Plain buckets are not simulated; until they are measured, they get the
            # plan's time.
            return replace(self._plain, predicted_s=self._plan.predicted_s)
        is_last = self._turn == _TURNS - 1
        # A plan that is slower at half-time is given up.
        if self._is_plan_better if is_last else self._wins >= 0.5:
            return self._plan
        return replace(self._plain, predicted_s=self._middle_s(True))

    def adopted(self, layout: Layout) -> None:
        """All ranks have adopted `layout`; at a choice it is the layout of rank 0."""
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
        """Share of the pairs (iteration of the plan, plain iteration) that the plan
        wins.
        """
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
        """Mean without the shortest and the longest iteration."""
        ordered = sorted(self._taken[is_plain])
        return statistics.mean(ordered[1:-1] or ordered)
