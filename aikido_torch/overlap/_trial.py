# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Test whether a plan is faster than plain buckets, by running both. Pure.

Note [plan vs. plain buckets]
The predicted time of a plan comes from a simulation, which may be wrong. It does not
model the time of hooks and partial steps on each rank. So each new plan and plain
buckets take turns of some iterations each: a machine that gets slower meanwhile slows
down both. Rank 0 compares them after each turn. The trial of a slower plan ends at
once. Iterations before the trial are compared with the first turn only, because the
first iterations of a training are slow.

A plan stays under two conditions. The plan is faster than plain buckets by more than
the noise of such a comparison. The measured iterations of the plan also take the
predicted time. The first prediction comes from iterations of plain buckets, so the
prediction is repeated with the computation and the transfers of each turn of the plan.
If the measured iterations still take another time, the model of an iteration is wrong
for this training.
"""

import statistics
from collections.abc import Iterable
from dataclasses import replace

from aikido_torch.overlap._layout import Layout

__all__ = ["Trial"]

_TURNS = 3  # the plan has the first and third turn, plain buckets the second
_ITERATIONS = 4  # iterations of a turn, after the iteration that changes the layout
_OFF = 0.1  # relative error above which a prediction counts as wrong
_FASTER = 0.98  # largest share of the time of plain buckets that a plan may take
# The plan must be faster in at least this share of all pairs of iterations, one of each
# side. Two equal sides reach it in about 1 of 10 comparisons (rank-sum test: Mann and
# Whitney 1947, 8 of the plan and 4 of the other).
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
        self._taken: dict[bool, list[float]] = {}  # seconds; key: of plain buckets
        self._predicted_s: list[float] = []  # after each turn of the plan
        self._turn = 0
        self._num_since = 0
        self.verdict = ""

    @property
    def is_on(self) -> bool:
        """True while a plan is under trial."""
        return self._plan is not None

    @property
    def is_due(self) -> bool:
        """True if all ranks must call `plan_to_correct`, `next` and `adopted`."""
        return self.is_on and self._num_since > _ITERATIONS

    @property
    def plan_to_correct(self) -> Layout | None:
        """The plan, if its prediction must be repeated before `next`."""
        return None if self._is_plain_turn else self._plan

    def begin(self, plan: Layout, plain: Layout, plain_s: Iterable[float] = ()) -> None:
        """Starts the trial of `plan`, which all ranks have adopted.

        Args:
            plain: plain buckets of the same model.
            plain_s: seconds of the last iterations, if these had plain buckets.
        """
        self._plan = None if plan.sends_as(plain) else plan
        self._plain = plain
        self._taken = {False: [], True: list(plain_s)[-_ITERATIONS:]}
        self._predicted_s = []
        self._turn = self._num_since = 0

    def correct(self, predicted_s: float) -> None:
        """Adds a prediction from the costs of the plan's last turn; the mean counts."""
        assert self._plan is not None
        self._predicted_s.append(predicted_s)
        mean_s = statistics.mean(self._predicted_s)
        self._plan = replace(self._plan, predicted_s=mean_s)

    def has_rejected(self, plan: Layout) -> bool:
        """True if the plan lost its trial, and the links are the same since."""
        return self._rejected is not None and plan.sends_as(self._rejected)

    def forget(self) -> None:
        """Forgets the rejected plan, because the links have changed."""
        self._rejected = None

    def add(self, seconds: float) -> None:
        """Adds the time of an iteration. The first iteration of a turn is ignored."""
        self._num_since += 1
        if self.is_on and self._num_since > 1:
            self._taken[self._is_plain_turn].append(seconds)

    def next(self) -> tuple[Layout, bool]:
        """The layout to adopt now, and True if the trial ends. Requires: `is_due`."""
        assert self._plan is not None
        assert self._plain is not None
        is_last = self._turn == _TURNS - 1
        if is_last and self._is_plan_better:
            return self._plan, True
        if is_last or self._wins < 0.5:
            return replace(self._plain, predicted_s=self._middle_s(True)), True
        if self._is_plain_turn:
            return self._plan, False
        # Plain buckets are not simulated; until they are measured, they get the
        # plan's time.
        return replace(self._plain, predicted_s=self._plan.predicted_s), False

    def adopted(self, layout: Layout, *, is_over: bool) -> None:
        """All ranks have adopted `layout`. Both arguments are the answer of rank 0."""
        assert self._plan is not None
        self._num_since = 0
        if not is_over:
            if self._turn == 0:
                self._taken[True].clear()
            self._turn += 1
            return
        self.verdict = self._sentence(layout)
        self._rejected = self._plan if layout.is_plain else None
        self._plan = None

    @property
    def _is_plain_turn(self) -> bool:
        return self._turn % 2 == 1

    @property
    def _wins(self) -> float:
        """Share of the pairs (iteration of the plan, plain iteration) that the plan
        wins.
        """
        pairs = [(a, b) for a in self._taken[False] for b in self._taken[True]]
        return sum(a < b for a, b in pairs) / len(pairs) if pairs else 1.0

    @property
    def _is_plan_better(self) -> bool:
        is_faster = self._middle_s(False) <= _FASTER * self._middle_s(True)
        return is_faster and self._wins >= _WINS and not self._is_off

    @property
    def _is_off(self) -> bool:
        """True if the plan's iterations do not take the predicted time."""
        assert self._plan is not None
        predicted_s = self._plan.predicted_s
        if predicted_s is None:
            return False
        return abs(self._middle_s(False) - predicted_s) > _OFF * predicted_s

    def _middle_s(self, is_plain: bool) -> float:
        """Mean without the shortest and the longest iteration."""
        ordered = sorted(self._taken[is_plain])
        return statistics.mean(ordered[1:-1] or ordered)

    def _sentence(self, layout: Layout) -> str:
        assert self._plan is not None
        plan_ms = f"{1e3 * self._middle_s(False):.1f} ms"
        if self._is_off and self._plan.predicted_s is not None:
            plan_ms += f" (predicted: {1e3 * self._plan.predicted_s:.1f} ms)"
        plain_s = self._taken[True]
        plain_ms = f" and plain buckets took {1e3 * self._middle_s(True):.1f} ms"
        used = "plain buckets are" if layout.is_plain else "the plan is"
        return f"the plan took {plan_ms}{plain_ms if plain_s else ''}: {used} used"
