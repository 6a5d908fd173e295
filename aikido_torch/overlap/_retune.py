# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision when the layout of a model is planned again. Pure.

Note [the time of a sum]
The duration of a call contains more than its transfer: the rank waits for ranks that
call later, and the sum waits for other sums on the link. So two fits are made.

1. A fit of the calls on this rank alone, to notice that the links have another rate. If
  k sums of B bytes keep the link busy for T seconds in an iteration, the sample is B /
  k bytes in T / k seconds. There is one sample for each iteration, because many small
  sums would outvote the large sum that counts.
2. A fit of transfers, for plans, from the times of all ranks by one clock
  (`transfer_time`). A sum begins when the last rank has called, or when the sum before
  has ended, whichever is later. It ends when the last rank has received it. Sums of a
  probe, which has the links for itself, are transfers too.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Sequence

from aikido_torch import _C
from aikido_torch.overlap._iteration import Iteration, typical
from aikido_torch.overlap._trial import Trial

__all__ = [
    "FIRST_ITERATIONS",
    "LEAST_GAIN",
    "Retune",
    "Sum",
    "SumLog",
    "busy_time",
    "link_of",
    "transfer_time",
]

# (begin, end, bytes) of one sum; seconds of any clock.
Sum = tuple[float, float, int]

_MOST_OUTCOMES = 100_000
FIRST_ITERATIONS = 3  # iterations that are observed before the first plan
LEAST_GAIN = 0.05  # share of an iteration that a plan must save to be worth a trial
_RECENT = 8  # number of recent iterations whose median is the present time
_OFF = 0.2  # share by which the present time may differ from the predicted time
# Iterations between two plans because of a wrong prediction; doubles each time.
_LEAST_PAUSE = 32
# The same because of another rate; grows by a factor each time.
_LEAST_RATE_PAUSE, _MOST_RATE_PAUSE, _LONGER = 16, 256, 4
# After this many pauses, another rate is noticed as quickly as at the beginning.
_LONG = 8
_KNOWN = 4  # iterations of a layout after which the cost of its calls is known
_ENOUGH = 3  # number of equal plans in a row that end the search for a better plan
_OTHER_COST = 2.0  # factor of a sum's time, up or down, that starts the search again


class SumLog:
    """Ended sums of one model.

    Attributes:
        outcomes: outcomes of the sums, oldest first, the last 100,000.
    """

    def __init__(self) -> None:
        self.outcomes: deque[_C.Outcome] = deque(maxlen=_MOST_OUTCOMES)
        self._ended: list[Sum] = []

    def add(self, num_bytes: int, sent_s: float, work: _C.AikidoWork) -> None:
        """Adds a sum that has ended. A failed sum has no outcome and is omitted."""
        outcome = work.outcome()
        if outcome is not None:
            self.outcomes.append(outcome)
            self._ended.append((sent_s, sent_s + outcome.duration_ms / 1e3, num_bytes))

    def take(self) -> list[Sum]:
        """Removes and returns the sums since the last call."""
        ended, self._ended = self._ended, []
        return ended


class Retune:
    """Observations of one rank since the last plan; decides whether it wants another.

    Attributes:
        predicted_s: predicted seconds of an iteration by the present plan; None: no
            plan.
        is_measured: True if iterations were observed since the last plan.
    """

    def __init__(self) -> None:
        self._fit = _C.LinkFit()  # of calls
        self._transfers = _C.LinkFit()
        self._samples: deque[tuple[float, float]] = deque(maxlen=4 * _RECENT)
        self._sums: deque[list[Sum]] = deque(maxlen=_RECENT)
        self._changes = 0  # number of changes of the link's rate until the last plan
        self._iterations: deque[Iteration] = deque(maxlen=_RECENT)
        # Iterations that were observed under the plan before.
        self._before: tuple[Iteration, ...] = ()
        # The last iterations with observed uses and gradients; plain buckets observe
        # none.
        self._watched: deque[Iteration] = deque(maxlen=_RECENT)
        self._since = 0  # iterations since the last plan
        self._pause = _LEAST_PAUSE
        # Pause between two plans because of another rate; here before the first plan.
        self._rate_pause = _LEAST_RATE_PAUSE // _LONGER
        self._num_equal = 0  # number of plans in a row that changed nothing
        self._sum_bytes = 0.0  # mean bytes of a sum in the last iteration
        # Fitted cost of calls soon after the last plan.
        self._then: _C.LinkCost | None = None
        self.trial = Trial()
        self.predicted_s: float | None = None

    @property
    def link(self) -> _C.LinkCost | None:
        """Cost of transfers; before the first transfer that of calls; None before
        both.
        """
        return self._transfers.link or self._fit.link

    @property
    def uncertainty(self) -> float | None:
        """Median relative difference between observed transfers and `link`; None if
        none.
        """
        link = self._transfers.link
        if link is None or not self._samples:
            return None
        said = [link.time_s(num_bytes) for num_bytes, _ in self._samples]
        seen = [seconds for _, seconds in self._samples]
        return statistics.median(
            abs(a - b) / max(a, b, 1e-9) for a, b in zip(said, seen, strict=True)
        )

    def sums_by(self, ahead_s: float) -> list[list[Sum]]:
        """Sums of the recent iterations since the last plan, for `add_transfers`.

        Args:
            ahead_s: seconds that are added to all times, to convert them to another
                clock.
        """
        return [
            [(begin + ahead_s, end + ahead_s, size) for begin, end, size in sums]
            for sums in self._sums
        ]

    @property
    def measured_s(self) -> float | None:
        """Median seconds of the recent iterations, of this plan if possible; None if
        none.
        """
        if not self._seen:
            return None
        return statistics.median(it.seconds for it in self._seen)

    @property
    def recent_s(self) -> list[float]:
        """Seconds of the last iterations with the present layout, oldest first."""
        return [iteration.seconds for iteration in self._iterations]

    @property
    def computing_s(self) -> list[float]:
        """Seconds of computing in the same iterations."""
        return [iteration.compute_s for iteration in self._iterations]

    @property
    def iteration(self) -> Iteration:
        """A typical recent iteration whose computation was observed.

        Requires: at least one iteration was added.
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
        """Adds transfers of (bytes, seconds) that were alone on the link."""
        for num_bytes, seconds in samples:
            self._fit.add(bytes=num_bytes, seconds=seconds)
            self._add_transfer(num_bytes, seconds)

    def add_transfers(
        self, seen: Sequence[Sequence[Sequence[Sum]]], *, is_one_clock: bool
    ) -> list[tuple[float, float]]:
        """Adds the results of `sums_by` of all ranks.

        Without a common clock, only the rank counts whose sums kept the link busy for
        the shortest time, because it has waited least for others.

        Args:
            seen: by rank, iteration and sum.
            is_one_clock: True if the times of all ranks are by one clock.

        Returns:
            (bytes, seconds) as of one transfer, for each iteration.
        """
        found = []
        for of_iteration in zip(*seen, strict=False):
            if is_one_clock:
                sample = transfer_time(of_iteration)
            else:
                each = [busy_time(sums) for sums in of_iteration if sums]
                sample = min(each, key=lambda it: it[1], default=None)
            if sample is not None:
                self._add_transfer(*sample)
                found.append(sample)
        return found

    def _add_transfer(self, num_bytes: float, seconds: float) -> None:
        self._transfers.add(bytes=num_bytes, seconds=seconds)
        self._samples.append((num_bytes, seconds))

    def add(self, iteration: Iteration, sums: Sequence[Sum]) -> None:
        """Adds an iteration that is over, and the sums of the iteration before it."""
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
            if self._since <= _KNOWN:
                self._then = _copied(self._fit.link)

    @property
    def wants_plan(self) -> bool:
        """True if the link has another rate, or the prediction of the last plan is
        wrong.

        The first plan is wanted as soon as it can save enough. Plans that change
        nothing end the search: each doubles the pause. After _ENOUGH of them in a row,
        only a link with another cost is a reason for a plan.
        """
        if self.measured_s is None:
            return False
        if self.predicted_s is None:
            return self._since >= FIRST_ITERATIONS and self._may_gain
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
        """One side of the trial is over, and another layout was adopted."""
        self.predicted_s = predicted_s
        self._begin(is_other=True)

    def planned(self, predicted_s: float, *, is_equal: bool = False) -> None:
        """A new plan was made.

        Args:
            predicted_s: predicted seconds of an iteration.
            is_equal: True if buckets and their order stay the same.
        """
        if self.predicted_s is not None and self._fit.changes == self._changes:
            self._pause *= 2  # the last plan did not help
        self._num_equal = self._num_equal + 1 if is_equal else 0
        # On a machine with other work the rate changes again and again: plan less
        # often.
        is_first_in_long = self._since > _LONG * self._rate_pause
        longer = min(_LONGER * self._rate_pause, _MOST_RATE_PAUSE)
        self._rate_pause = _LEAST_RATE_PAUSE if is_first_in_long else longer
        if self._fit.changes != self._changes:
            self.trial.forget()
        self.predicted_s = predicted_s
        self._changes = self._fit.changes
        self._then = _copied(self._fit.link)
        self._begin(is_other=not is_equal)

    def _begin(self, *, is_other: bool) -> None:
        """Forgets observations that belong to the layout before.

        Args:
            is_other: True if the ranks have adopted another layout.
        """
        self._sums.clear()
        if is_other:  # calls of another layout take other times on the same link
            self._fit, self._changes, self._then = _C.LinkFit(), 0, None
        self._since = 0
        self._before = tuple(self._seen)
        self._iterations.clear()

    @property
    def _may_gain(self) -> bool:
        """Waiting takes a share of an iteration that is worth a plan."""
        compute_s = statistics.median(it.compute_s for it in self._seen)
        return compute_s <= (1 - LEAST_GAIN) * (self.measured_s or 0.0)

    @property
    def _has_other_cost(self) -> bool:
        now, then = self._fit.link, self._then
        if now is None or then is None:
            return False
        pair = now.time_s(self._sum_bytes), then.time_s(self._sum_bytes)
        return max(pair) > _OTHER_COST * min(pair)


def _copied(link: _C.LinkCost | None) -> _C.LinkCost | None:
    """A cost that does not change with its fit."""
    if link is None:
        return None
    return _C.LinkCost(alpha_s=link.alpha_s, beta_s=link.beta_s)


def link_of(samples: Sequence[tuple[float, float]]) -> _C.LinkCost | None:
    """Mean cost of a byte in (bytes, seconds) of one layout's transfers; None: of none.

    The fastest and the slowest do not count. Transfers of one layout are alike, so
    the cost of a call and the cost of a byte cannot be separated.
    """
    ordered = sorted((seconds / size, size) for size, seconds in samples if size > 0)
    middle = ordered[1:-1] or ordered
    if not middle:
        return None
    num_bytes = sum(size for _, size in middle)
    beta_s = sum(each * size for each, size in middle) / num_bytes
    return _C.LinkCost(alpha_s=0.0, beta_s=beta_s)


def busy_time(sums: Sequence[Sum]) -> tuple[float, float]:
    """(bytes, seconds) of an average sum, from the time during which any sum was
    running.

    Requires: at least one sum.
    """
    busy_s, until = 0.0, float("-inf")
    for begin, end, _ in sorted(sums):
        busy_s += max(0.0, end - max(begin, until))
        until = max(until, end)
    return sum(num_bytes for _, _, num_bytes in sums) / len(sums), busy_s / len(sums)


def transfer_time(by_rank: Sequence[Sequence[Sum]]) -> tuple[float, float] | None:
    """(bytes, seconds) of an average transfer, from the sums of an iteration on each
    rank.

    Args:
        by_rank: sums of each rank; all times are by one clock.

    Returns:
        None if the ranks report different sums.
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
