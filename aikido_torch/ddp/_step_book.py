# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Record of the running bucket calls, and of the outcomes of ended calls, by step."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

from aikido_torch import _C
from aikido_torch._backend import progress_on
from aikido_torch._job_ranks import say_both
from aikido_torch.data._backups import late_in
from aikido_torch.errors import AikidoError
from aikido_torch.recovery._catch_up_policy import OWN_STEPS
from aikido_torch.straggler._share_watch import ShareWatch
from aikido_torch.straggler._steps import StepCounters, Steps
from aikido_torch.straggler._waiting import Waiting

__all__ = ["StepBook"]

# Way in which a rank has done a step.
Way = Literal["own", "replayed", "copied"]
# Calls of a step, each with the number of its elements.
Calls = Sequence[tuple[_C.AikidoWork, int]]

_log = logging.getLogger("aikido")

_MOST_OUTCOMES = 100_000
_MOST_STEPS = 10_000
# Number of running calls after which `collect` should be called.
_MANY = 64


class StepBook:
    """The record of one handle. For the training thread only.

    Args:
        rank: this rank in the model's group.
        size: size of that group.
        say: translates a sentence that names ranks of the group.
        waiting: returns the estimated result of waiting for all ranks.

    Attributes:
        shares: shares of contributions in the last minute.
        skipped_steps: steps in which this rank's gradient, or a part of it, was
            skipped.
        replayed_steps, copied_steps: steps that ended in these ways.
        own_steps_s: seconds that the last own steps took.
        outcomes: outcomes of ended calls, oldest first, the last 100,000.
        by_step: the same added up for each step, the last 10,000.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        say: Callable[[str], str] = str,
        waiting: Callable[[], Waiting | None] = lambda: None,
    ) -> None:
        self._waiting = waiting
        self._rank, self._size = rank, size
        self._say = say
        self.shares = ShareWatch(rank, size, time.monotonic())
        self._last_skipped = -1
        self.skipped_steps = self.replayed_steps = self.copied_steps = 0
        self.own_steps_s: deque[float] = deque(maxlen=OWN_STEPS)
        self._stepped_at = time.monotonic()
        self._running: list[tuple[int, _C.AikidoWork, int]] = []
        # Calls that are not recorded yet: their step, its end if it is over, the calls.
        self._unread: list[tuple[int, float | None, Calls]] = []
        self.outcomes: deque[_C.Outcome] = deque(maxlen=_MOST_OUTCOMES)
        self.by_step: dict[int, StepCounters] = {}

    @classmethod
    def of(cls, backend: _C.AikidoBackend) -> "StepBook":
        """A new record for this rank of a group."""
        say = partial(say_both, backend=backend)
        book = cls(*backend.place, say, lambda: Waiting.of(backend.counters))
        progress_on[backend] = book.shares
        return book

    @property
    def has_many(self) -> bool:
        """True if it is time for `collect`; the cost per call is low for many calls at
        once.
        """
        return len(self._running) + len(self._unread) >= _MANY

    def start(self, step: int, work: _C.AikidoWork, num_elements: int = 1) -> None:
        """A call of `step` on a tensor of `num_elements` has begun."""
        if self._unread:
            self._unread.append((step, None, [(work, num_elements)]))
        else:
            self._running.append((step, work, num_elements))

    def end_quiet(self, first_step: int, steps: Iterable[tuple[float, Calls]]) -> None:
        """Own steps from `first_step` on are over.

        `end_step` or `collect` records them. Call these while a bucket is being
        reduced: no rank waits for this one there.

        Args:
            first_step: number of the first of these steps.
            steps: when each ended, by time.monotonic(), and its calls.
        """
        for step, (ended_at, calls) in enumerate(steps, first_step):
            self._unread.append((step, ended_at, calls))

    def _record_quiet(self) -> None:
        unread, self._unread = self._unread, []
        for step, ended_at, calls in unread:
            self._running += [(step, work, count) for work, count in calls]
            if ended_at is not None:
                self._record_end(step, "own", None, ended_at)

    def counters(self, step: int) -> StepCounters:
        """The counters of `step`, which the caller may change."""
        if step not in self.by_step:
            self.by_step[step] = StepCounters(step)
            if len(self.by_step) > _MOST_STEPS:
                del self.by_step[next(iter(self.by_step))]
        return self.by_step[step]

    def end_step(self, step: int, way: Way, copied_from: int | None = None) -> None:
        """Records the end of `step`.

        Args:
            step: number of the step.
            way: way in which this rank has done it.
            copied_from: rank whose state was copied; None: none was.
        """
        self._record_quiet()
        self._record_end(step, way, copied_from, time.monotonic())

    def _record_end(
        self, step: int, way: Way, copied_from: int | None, now: float
    ) -> None:
        counters = self.counters(step)
        counters.way, counters.copied_from = way, copied_from
        if way == "own":
            self.own_steps_s.append(now - self._stepped_at)
        elif way == "replayed":
            self.replayed_steps += 1
        else:
            self.copied_steps += 1
        self._stepped_at = counters.ended_at = now

    def steps(self, notes: Iterable[str]) -> Steps:
        """The counters of the last steps, with `notes` on losses by skipping."""
        return Steps(
            self.by_step.values(),
            notes=notes,
            place=(self._rank, self._size),
            waiting=self._waiting(),
        )

    def note_skipped(self, step: int) -> None:
        """Records that `step` was done without this rank's gradient."""
        if step > self._last_skipped:
            self._last_skipped = step
            self.skipped_steps += 1

    def note_copied(self, step: int) -> None:
        """Records that `step` is contained in a state that this rank has copied."""
        self.note_skipped(step)
        self.shares.on_copied(step)

    def by_lateness(self, size: int) -> list[int]:
        """The other ranks of the group; ranks that were on time in the last call come
        first.

        The order begins at the next rank, so that several late ranks ask different
        ranks.
        """
        others = [(self._rank + i) % size for i in range(1, size)]
        late = late_in(self.outcomes[-1]) if self.outcomes else set()
        return sorted(others, key=lambda rank: rank in late)

    def collect(self) -> list[tuple[int, _C.Outcome]]:
        """The calls that have ended since the last time, with their steps."""
        self._record_quiet()
        ended, left = [], []
        for step, work, num_elements in self._running:
            if not work.is_completed():
                left.append((step, work, num_elements))
                continue
            try:
                outcome = work.outcome()
            except AikidoError:
                continue  # the step has raised this error, or is lost
            if outcome is None:
                continue
            self.outcomes.append(outcome)
            self.counters(step).add(outcome, num_elements)
            self.shares.on_call(step, outcome, num_elements)
            ended.append((step, outcome))
            if self._rank in outcome.skipped:
                self.note_skipped(step)
        self._running = left
        for text in self.shares.look(time.monotonic()):
            _log.warning(self._say(text))
        return ended
