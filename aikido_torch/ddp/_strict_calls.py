# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Strict calls of the user's loop, and the steps that a rank goes past. Pure.

Note [calls of steps that a rank goes past]
Buckets are reduced on a group of their own, so calls of the loop on the model's group
do not keep a late rank from catching up. But the rank leaves out the calls of the steps
that it goes past, and the numbers of its later calls would not be those of the others.

    all_reduce, barrier    others wait for the late rank in the step where they call it.
                           The rank must not go past that step: it does the step itself,
                           and makes the call in it.
    broadcast              others wait for its source only and go on. The late rank may
                           go past these steps. It leaves out the number of each call.

A rank does not see which kind a call is. If others have begun two later steps, and all
of them were in time in the last one, they do not wait in calls of this kind. Until then
a rank whose loop has calls behind the backward goes past a step only if others have
begun the second one behind it. Calls before the backward need no such care: a rank that
goes up to the step in which others wait makes the call next.

A rank that is late in its first steps has calls in its loop, but does not know yet how
many each step has. It does these steps itself until it knows, or has seen that not each
step has a call.
"""

import sys
from collections import deque

__all__ = ["StrictCalls"]

_ANY = sys.maxsize
# Steps in a row with the same number of calls; then each step is taken to have it.
_STEADY = 3


class StrictCalls:
    """Counts the calls of the loop by step. For the thread that trains.

    Attributes:
        per_step: calls in each step, as they were in steps in a row.
        are_free: others do not wait for a rank that leaves out its calls.
    """

    def __init__(self) -> None:
        self._in_a_row: deque[int] = deque(maxlen=_STEADY)
        self._top: tuple[int, int] | None = None  # steps and calls at the last catch_up
        self._is_special = False
        self._at_hook = 0
        self._has_calls = self._has_calls_behind = False
        self._is_known = False  # how many calls each step has, or that it varies
        self._is_quiet: bool | None = None  # no step has a call; None: not known yet
        self.per_step = 0
        self.are_free = False

    def on_meeting(self) -> None:
        """This step has more calls than others: it is one of `Handle.every`."""
        self._is_special = True

    def on_hook(self, calls: int) -> None:
        """A backward begins, behind so many calls."""
        self._at_hook = calls

    def on_top(self, steps: int, calls: int) -> None:
        """`catch_up` begins, behind so many steps and calls."""
        is_special, self._is_special = self._is_special, False
        if self._top is None or is_special or steps != self._top[0] + 1:
            return
        self._has_calls |= calls > self._top[1]
        self._has_calls_behind |= calls > self._at_hook
        self._in_a_row.append(calls - self._top[1])
        if self._is_quiet is None and list(self._in_a_row) == [0] * _STEADY:
            self._is_quiet = True
        elif self._is_quiet and calls > self._top[1]:
            self._is_quiet = False
        if len(self._in_a_row) < _STEADY:
            return
        is_steady = len(set(self._in_a_row)) == 1
        self._is_known |= is_steady or 0 in self._in_a_row
        if is_steady:
            self.per_step = self._in_a_row[0]

    def limit(self, *, moved: int, begun: int, ahead: int) -> int:
        """How many steps more this rank may go past.

        Args:
            moved: steps that this `catch_up` has gone past.
            begun: of the steps from here on, those behind which others have begun
                another one.
            ahead: calls that others have made and this rank has not.
        """
        if self._has_calls and not self._is_known:
            return 0
        if not self._has_calls_behind or (ahead <= 0 and self.per_step == 0):
            return _ANY
        if self.per_step > 0 and self.are_free:
            return _ANY
        return begun if moved + begun >= 2 else 0

    def limit_on_shared_group(self) -> int:
        """`limit` if the buckets are reduced on the group of these calls.

        Their numbers are then in one order with the calls of the loop, and a rank that
        went past a step would leave out a call between two buckets. So the rank goes
        past steps only while it knows of steps in a row without a call, and of no step
        with one since. DistributedDataParallel makes calls in the first steps.
        """
        return _ANY if self._is_quiet else 0

    def note_in_time(self, moved: int) -> None:
        """All others were in time in the last one of `moved` replayed steps."""
        self.are_free |= self.per_step > 0 and moved >= 2

    def on_moved(self, *, moved: int, made: int) -> int:
        """`catch_up` ends. Returns how many calls this rank has to leave out.

        Args:
            moved: steps that it has gone past.
            made: calls that were made in replayed steps.
        """
        if moved > 0:
            self._in_a_row.clear()
        return max(0, self.per_step * moved - made)

    def end_top(self, steps: int, calls: int) -> None:
        """Steps and calls behind this rank when `catch_up` returns."""
        self._top = (steps, calls)
