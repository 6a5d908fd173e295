# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""When the sums of a model are planned anew. Pure: what was seen in, a wish out.

Note [what a sum takes]
Sums share the link, so the time of each says little. But k sums of B bytes keep it busy
for T seconds in an iteration, from when one is sent to when all that were sent are
here: as if each had taken T / k for B / k bytes, which the fit of the link gets. One
sample for each iteration: many small sums would outvote the large one that counts.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Sequence

from aikido_torch import _C
from aikido_torch.ddp._iteration import Iteration, typical

__all__ = ["FIRST_ITERATIONS", "Retune", "Sum", "busy_time"]

# (begin, end, bytes) of one sum; seconds of any clock.
Sum = tuple[float, float, int]

FIRST_ITERATIONS = 3  # iterations that are seen before the first plan
_RECENT = 8  # iterations that the present time is the median of
_OFF = 0.2  # share that it may be off the plan's
_LEAST_PAUSE = 32  # iterations between two plans because of that; it doubles


class Retune:
    """What one rank has seen since the last plan, and whether it wants another one.

    Attributes:
        predicted_s: of an iteration, by the present plan; None: there is none.
    """

    def __init__(self) -> None:
        self._fit = _C.LinkFit()
        self._changes = 0  # of the link's rate, at the last plan
        self._iterations: deque[Iteration] = deque(maxlen=_RECENT)
        self._since = 0  # the last plan
        self._pause = _LEAST_PAUSE
        self.predicted_s: float | None = None

    @property
    def link(self) -> _C.LinkCost | None:
        """As it was seen; None before the first sum."""
        return self._fit.link

    @property
    def measured_s(self) -> float | None:
        """Of an iteration, of late; None before the first."""
        if not self._iterations:
            return None
        return statistics.median(it.seconds for it in self._iterations)

    @property
    def iteration(self) -> Iteration:
        """As it is of late. Requires: there was one."""
        return typical(self._iterations)

    def add_link(self, samples: Iterable[tuple[float, float]]) -> None:
        """Transfers of (bytes, seconds) alone on the link."""
        for num_bytes, seconds in samples:
            self._fit.add(bytes=num_bytes, seconds=seconds)

    def add(self, iteration: Iteration, sums: Sequence[Sum]) -> None:
        """An iteration is over, and these are the sums of the one before."""
        self._iterations.append(iteration)
        self._since += 1
        if sums:
            self.add_link([busy_time(sums)])

    @property
    def wants_plan(self) -> bool:
        """One for another rate, or one where the last one is wrong."""
        if self.predicted_s is None or self.measured_s is None:
            return False
        if self._since < _RECENT:
            return False
        if self._fit.changes > self._changes:
            return True
        off = abs(self.measured_s - self.predicted_s) > _OFF * self.predicted_s
        return off and self._since >= self._pause

    def planned(self, predicted_s: float) -> None:
        """There is a new plan."""
        if self.predicted_s is not None and self._fit.changes == self._changes:
            self._pause *= 2  # it did not help to plan anew
        self.predicted_s = predicted_s
        self._changes = self._fit.changes
        self._since = 0
        self._iterations.clear()


def busy_time(sums: Sequence[Sum]) -> tuple[float, float]:
    """(bytes, seconds) as of one sum. Requires: there is one."""
    busy_s, until = 0.0, float("-inf")
    for begin, end, _ in sorted(sums):
        busy_s += max(0.0, end - max(begin, until))
        until = max(until, end)
    return sum(num_bytes for _, _, num_bytes in sums) / len(sums), busy_s / len(sums)
