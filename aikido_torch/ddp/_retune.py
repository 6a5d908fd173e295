# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""When the sums of a model are planned anew. Pure: what was seen in, a wish out.

Note [what a sum takes]
The time of a call has more in it than its transfer: the rank waits for ranks that
call later, and the sum waits behind others on the link. Two fits are made.

1. Of calls on this rank alone, to notice that the links have another rate: k sums of
   B bytes keep the link busy for T seconds in an iteration, as if each had taken T / k
   for B / k bytes. One sample for each iteration: many small sums would outvote the
   large one that counts.
2. Of transfers, for plans, from what all ranks saw by one clock (`transfer_time`): a
   sum begins when the last rank has called, or when the sum before it has ended,
   whichever is later, and it ends when the last rank has it. Sums of a probe, which
   has the links for itself, are transfers too.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Sequence

from aikido_torch import _C
from aikido_torch.ddp._iteration import Iteration, typical
from aikido_torch.ddp._trial import Trial

__all__ = ["FIRST_ITERATIONS", "Retune", "Sum", "busy_time", "transfer_time"]

# (begin, end, bytes) of one sum; seconds of any clock.
Sum = tuple[float, float, int]

FIRST_ITERATIONS = 3  # iterations that are seen before the first plan
_RECENT = 8  # iterations that the present time is the median of
_OFF = 0.2  # share that it may be off the plan's
_LEAST_PAUSE = 32  # iterations between two plans because of that; it doubles
_LONG = 2  # pauses after which another rate is looked for as at the beginning
_ENOUGH = 3  # equal plans in a row that end the search for a better one
_OTHER_COST = 2.0  # factor of a sum's time, up or down, that begins the search again


class Retune:
    """What one rank has seen since the last plan, and whether it wants another one.

    Attributes:
        predicted_s: of an iteration, by the present plan; None: there is none.
        is_measured: iterations were seen since the last plan.
    """

    def __init__(self) -> None:
        self._fit = _C.LinkFit()  # of calls
        self._transfers = _C.LinkFit()
        self._samples: deque[tuple[float, float]] = deque(maxlen=4 * _RECENT)
        self._sums: deque[list[Sum]] = deque(maxlen=_RECENT)
        self._changes = 0  # of the link's rate, at the last plan
        self._iterations: deque[Iteration] = deque(maxlen=_RECENT)
        self._before: tuple[Iteration, ...] = ()  # seen with the plan before
        # The last whose uses and gradients were seen: nobody looks in plain buckets.
        self._watched: deque[Iteration] = deque(maxlen=_RECENT)
        self._since = 0  # the last plan
        self._pause = _LEAST_PAUSE
        self._rate_pause = _RECENT // 2  # the same because of another rate
        self._num_equal = 0  # plans in a row that changed nothing
        self._sum_bytes = 0.0  # of a typical sum
        self._alpha_s, self._beta_s = 0.0, 0.0  # of calls at the last plan
        self.trial = Trial()
        self.predicted_s: float | None = None

    @property
    def link(self) -> _C.LinkCost | None:
        """What transfers take; of calls until some were seen; None before the first."""
        return self._transfers.link or self._fit.link

    @property
    def uncertainty(self) -> float | None:
        """Median share by which transfers differ from `link`; None before the first."""
        link = self._transfers.link
        if link is None or not self._samples:
            return None
        said = [link.time_s(num_bytes) for num_bytes, _ in self._samples]
        seen = [seconds for _, seconds in self._samples]
        return statistics.median(
            abs(a - b) / max(a, b, 1e-9) for a, b in zip(said, seen, strict=True)
        )

    def sums_by(self, ahead_s: float) -> list[list[Sum]]:
        """Of the last iterations since the last plan, for `add_transfers`.

        By a clock that is so far ahead of this one.
        """
        return [
            [(begin + ahead_s, end + ahead_s, size) for begin, end, size in sums]
            for sums in self._sums
        ]

    @property
    def measured_s(self) -> float | None:
        """Of the last iterations, since the last plan if there were any; else None."""
        if not self._seen:
            return None
        return statistics.median(it.seconds for it in self._seen)

    @property
    def iteration(self) -> Iteration:
        """A typical one of those in which computing was watched, at best the same.

        Requires: there was an iteration.
        """
        watched = [it for it in self._seen if it.ready]
        return typical(watched or self._watched or self._seen)

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
            self._add_transfer(num_bytes, seconds)

    def add_transfers(
        self, seen: Sequence[Sequence[Sequence[Sum]]], *, is_one_clock: bool
    ) -> None:
        """What `sums_by` gives on each rank, by rank.

        Without a common clock the rank counts whose sums kept the link busy for the
        least time: it has waited least for others.
        """
        for of_iteration in zip(*seen, strict=False):
            if is_one_clock:
                sample = transfer_time(of_iteration)
            else:
                each = [busy_time(sums) for sums in of_iteration if sums]
                sample = min(each, key=lambda it: it[1], default=None)
            if sample is not None:
                self._add_transfer(*sample)

    def _add_transfer(self, num_bytes: float, seconds: float) -> None:
        self._transfers.add(bytes=num_bytes, seconds=seconds)
        self._samples.append((num_bytes, seconds))

    def add(self, iteration: Iteration, sums: Sequence[Sum]) -> None:
        """An iteration is over, and these are the sums of the one before."""
        self._iterations.append(iteration)
        if iteration.ready:
            self._watched.append(iteration)
        self._since += 1
        self.trial.add(iteration.seconds)
        if sums:
            self._sums.append(list(sums))
            num_bytes, seconds = busy_time(sums)
            self._sum_bytes = num_bytes
            self._fit.add(bytes=num_bytes, seconds=seconds)

    @property
    def wants_plan(self) -> bool:
        """The link has another rate, or the prediction of the last plan is wrong.

        Plans that change nothing end the search: each doubles the pause, and after
        _ENOUGH of them in a row only a link of another cost is a reason.
        """
        if self.predicted_s is None or self.measured_s is None:
            return False
        if self.trial.is_on:
            return self.trial.is_due
        if self._since < _RECENT:
            return False
        if self._num_equal >= _ENOUGH:
            return self._since >= self._rate_pause and self._has_other_cost
        if self._fit.changes > self._changes:
            return self._since >= self._rate_pause
        off = abs(self.measured_s - self.predicted_s) > _OFF * self.predicted_s
        return off and self._since >= self._pause

    def tried(self, predicted_s: float) -> None:
        """A side of the trial is over, and another layout is adopted."""
        self.predicted_s = predicted_s
        self._begin()

    def planned(self, predicted_s: float, *, is_equal: bool = False) -> None:
        """There is a new plan. `is_equal`: buckets and their places stay the same."""
        if self.predicted_s is not None and self._fit.changes == self._changes:
            self._pause *= 2  # it did not help to plan anew
        self._num_equal = self._num_equal + 1 if is_equal else 0
        # A machine with other work has another rate again and again: look less often.
        is_first_in_long = self._since > _LONG * self._rate_pause
        self._rate_pause = _RECENT if is_first_in_long else 2 * self._rate_pause
        if self._fit.changes != self._changes:
            self.trial.forget()
        if (calls := self._fit.link) is not None:
            self._alpha_s, self._beta_s = calls.alpha_s, calls.beta_s
        self.predicted_s = predicted_s
        self._changes = self._fit.changes
        self._begin()

    def _begin(self) -> None:
        """What is seen from now on is of another layout."""
        self._sums.clear()
        self._since = 0
        self._before = tuple(self._seen)
        self._iterations.clear()

    @property
    def _has_other_cost(self) -> bool:
        calls = self._fit.link
        now_s = 0.0 if calls is None else calls.time_s(self._sum_bytes)
        then_s = self._alpha_s + self._beta_s * self._sum_bytes
        return max(now_s, then_s) > _OTHER_COST * min(now_s, then_s)


def busy_time(sums: Sequence[Sum]) -> tuple[float, float]:
    """(bytes, seconds) as of one sum. Requires: there is one."""
    busy_s, until = 0.0, float("-inf")
    for begin, end, _ in sorted(sums):
        busy_s += max(0.0, end - max(begin, until))
        until = max(until, end)
    return sum(num_bytes for _, _, num_bytes in sums) / len(sums), busy_s / len(sums)


def transfer_time(by_rank: Sequence[Sequence[Sum]]) -> tuple[float, float] | None:
    """(bytes, seconds) as of one transfer, from the sums of an iteration on each rank.

    The times of all ranks are of one clock. None if the ranks do not tell of the same
    sums.
    """
    ranks = [sorted(sums) for sums in by_rank]
    if not ranks[0] or len({tuple(b for _, _, b in sums) for sums in ranks}) != 1:
        return None
    return busy_time(
        [
            (max(b for b, _, _ in calls), max(e for _, e, _ in calls), calls[0][2])
            for calls in zip(*ranks, strict=True)
        ]
    )
