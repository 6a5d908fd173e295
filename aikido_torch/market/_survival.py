# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Survival model of spot capacity: how soon a spell of availability or absence ends.

A spell is a time in which capacity stays available, or stays absent. The model has a
hazard (ends per second) for each kind of spell and each class of its age. The hazard of
a class is (prior ends + seen ends) / (prior seconds + seen seconds), which is the mean
of a Gamma posterior. Old observations lose weight exponentially.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._errors import MarketError

__all__ = ["AGE_EDGES_S", "Prior", "Survival"]

# Lower edges of the classes of age, in seconds. A spell ends sooner when it is young.
AGE_EDGES_S = (0.0, 600.0, 1800.0, 5400.0, 14400.0, 43200.0)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Belief about spells before the first observation.

    The prior hazard at age a is 1 / (mean_s + a), so a spell that has lasted long is
    expected to last long (Lomax distribution).

    Attributes:
        mean_s: seconds that a new spell lasts in expectation by its first hazard.
        weight: number of ends that the prior counts as, in each class of age.
        half_life_s: seconds after which an observation has half of its weight.
    """

    mean_s: float = 5400.0
    weight: float = 1.0
    half_life_s: float = 14 * 86400.0

    def __post_init__(self) -> None:
        for name in ("mean_s", "weight", "half_life_s"):
            if not getattr(self, name) > 0:
                raise MarketError(
                    f"Prior: {name} is {getattr(self, name)}; it must be above 0."
                )


class Survival:
    """Hazards by age, learned from one sample of availability after another.

    Not thread-safe. Equal samples give equal hazards.
    """

    def __init__(self, prior: Prior | None = None) -> None:
        self._prior = prior or Prior()
        self._ends = np.zeros((2, len(AGE_EDGES_S)))
        self._seconds = np.zeros((2, len(AGE_EDGES_S)))
        self._is_available: bool | None = None
        self._age_s = 0.0

    @property
    def is_available(self) -> bool | None:
        """Availability in the last sample; None before the first."""
        return self._is_available

    @property
    def age_s(self) -> float:
        """Seconds from the first sample of the present spell to the last sample."""
        return self._age_s

    def observe(self, is_available: bool, gap_s: float) -> None:
        """Adds the next sample, `gap_s` seconds after the one before it."""
        if not gap_s > 0:
            raise MarketError(f"gap_s is {gap_s}; the time between samples is above 0.")
        if self._is_available is not None:
            kept = 0.5 ** (gap_s / self._prior.half_life_s)
            self._ends *= kept
            self._seconds *= kept
            place = (int(self._is_available), age_class(self._age_s))
            self._seconds[place] += gap_s
            if is_available != self._is_available:
                self._ends[place] += 1
        if is_available == self._is_available:
            self._age_s += gap_s
        else:
            self._is_available, self._age_s = is_available, 0.0

    def hazards(self) -> NDArray[np.float64]:
        """Ends per second: row 0 for absence, row 1 for availability; a column by age.

        Shape (2, number of classes of age).
        """
        ages = np.array(AGE_EDGES_S)
        widths = np.append(np.diff(ages), ages[-1])
        prior_hazard = 1.0 / (self._prior.mean_s + ages + widths / 2)
        weight = self._prior.weight
        return (weight + self._ends) / (weight / prior_hazard + self._seconds)

    def survives(self, horizon_s: float) -> float:
        """Probability that the present spell lasts `horizon_s` seconds more.

        Raises:
            MarketError: no sample was observed.
        """
        if self._is_available is None:
            raise MarketError(
                "The survival model has no sample yet; observe one first."
            )
        row = self.hazards()[int(self._is_available)]
        edges = [*AGE_EDGES_S, math.inf]
        start, end = self._age_s, self._age_s + horizon_s
        exposure = [
            max(0.0, min(end, upper) - max(start, lower))
            for lower, upper in itertools.pairwise(edges)
        ]
        return float(np.exp(-np.dot(row, exposure)))


def age_class(age_s: float) -> int:
    """Index of the class of an age in seconds."""
    return int(np.searchsorted(AGE_EDGES_S, age_s, side="right")) - 1


def transitions(hazards: NDArray[np.float64], step_s: float) -> NDArray[np.float64]:
    """Transition probabilities of (availability, class of age) over `step_s` seconds.

    State i is class i % n of absence (i < n) or of availability, with n classes. The
    age moves to the next class with probability step / width, so the time in a class
    has the right mean. Shape (2 n, 2 n); rows sum to 1.
    """
    n = hazards.shape[1]
    ends = 1.0 - np.exp(-hazards * step_s)
    widths = np.diff(np.array(AGE_EDGES_S))
    moves = np.append(np.minimum(1.0, step_s / widths), 0.0)
    table = np.zeros((2 * n, 2 * n))
    for kind in range(2):
        for age in range(n):
            row = kind * n + age
            table[row, (1 - kind) * n] += ends[kind, age]
            stays = 1.0 - ends[kind, age]
            table[row, row] += stays * (1.0 - moves[age])
            if age + 1 < n:
                table[row, row + 1] += stays * moves[age]
    return table
