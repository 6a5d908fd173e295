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
_ENOUGH = 3  # equal plans in a row that end the search for a better one
_OTHER_COST = 2.0  # factor of a sum's time, up or down, that begins the search again


class Retune:
    """What one rank has seen since the last plan, and whether it wants another one.

    Attributes:
        predicted_s: of an iteration, by the present plan; None: there is none.
        is_measured: iterations were seen since the last plan.
    """

    def __init__(self) -> None:
        self._fit = _C.LinkFit()
        self._changes = 0  # of the link's rate, at the last plan
        self._iterations: deque[Iteration] = deque(maxlen=_RECENT)
        self._before: tuple[Iteration, ...] = ()  # seen with the plan before
        self._since = 0  # the last plan
        self._pause = _LEAST_PAUSE
        self._rate_pause = _RECENT  # the same because of another rate
        self._num_equal = 0  # plans in a row that changed nothing
        self._sum_bytes = 0.0  # of a typical sum
        self._alpha_s, self._beta_s = 0.0, 0.0  # of the link at the last plan
        self.predicted_s: float | None = None

    @property
    def link(self) -> _C.LinkCost | None:
        """As it was seen; None before the first sum."""
        return self._fit.link

    @property
    def measured_s(self) -> float | None:
        """Of the last iterations, since the last plan if there were any; else None."""
        if not self._seen:
            return None
        return statistics.median(it.seconds for it in self._seen)

    @property
    def iteration(self) -> Iteration:
        """A typical one of the same iterations. Requires: there was one."""
        return typical(self._seen)

    @property
    def is_measured(self) -> bool:
        return bool(self._iterations)

    @property
    def _seen(self) -> Sequence[Iteration]:
        return tuple(self._iterations) or self._before

    def add_link(self, samples: Iterable[tuple[float, float]]) -> None:
        """Transfers of (bytes, seconds) alone on the link."""
        for num_bytes, seconds in samples:
            self._fit.add(bytes=num_bytes, seconds=seconds)

    def add(self, iteration: Iteration, sums: Sequence[Sum]) -> None:
        """An iteration is over, and these are the sums of the one before."""
        self._iterations.append(iteration)
        self._since += 1
        if sums:
            sample = busy_time(sums)
            self._sum_bytes = sample[0]
            self.add_link([sample])

    @property
    def wants_plan(self) -> bool:
        """The link has another rate, or the prediction of the last plan is wrong.

        Plans that change nothing end the search: each doubles the pause, and after
        _ENOUGH of them in a row only a link of another cost is a reason.
        """
        if self.predicted_s is None or self.measured_s is None:
            return False
        if self._since < _RECENT:
            return False
        if self._num_equal >= _ENOUGH:
            return self._since >= self._rate_pause and self._has_other_cost
        if self._fit.changes > self._changes:
            return self._since >= self._rate_pause
        off = abs(self.measured_s - self.predicted_s) > _OFF * self.predicted_s
        return off and self._since >= self._pause

    def planned(self, predicted_s: float, *, is_equal: bool = False) -> None:
        """There is a new plan. `is_equal`: buckets and their places stay the same."""
        if self.predicted_s is not None and self._fit.changes == self._changes:
            self._pause *= 2  # it did not help to plan anew
        self._num_equal = self._num_equal + 1 if is_equal else 0
        self._rate_pause = 2 * self._rate_pause if is_equal else _RECENT
        if self.link is not None:
            self._alpha_s, self._beta_s = self.link.alpha_s, self.link.beta_s
        self.predicted_s = predicted_s
        self._changes = self._fit.changes
        self._since = 0
        self._before = tuple(self._seen)
        self._iterations.clear()

    @property
    def _has_other_cost(self) -> bool:
        now_s = 0.0 if self.link is None else self.link.time_s(self._sum_bytes)
        then_s = self._alpha_s + self._beta_s * self._sum_bytes
        return max(now_s, then_s) > _OTHER_COST * min(now_s, then_s)


def busy_time(sums: Sequence[Sum]) -> tuple[float, float]:
    """(bytes, seconds) as of one sum. Requires: there is one."""
    busy_s, until = 0.0, float("-inf")
    for begin, end, _ in sorted(sums):
        busy_s += max(0.0, end - max(begin, until))
        until = max(until, end)
    return sum(num_bytes for _, _, num_bytes in sums) / len(sums), busy_s / len(sums)
