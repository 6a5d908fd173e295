# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Strict calls of the user's loop, and steps that a late rank passes by replay. Pure.

Note [calls of steps that a rank passes]
Buckets are reduced on a group of their own, so calls of the loop on the model's group
do not keep a late rank from catching up. But the late rank does not make the calls of
the steps that it passes, so the sequence numbers of its later calls would differ from
those of the other ranks.

```text
all_reduce, barrier    the others wait for the late rank in the step where they call
                       it. The late rank must not pass that step: it does the step
                       itself and makes the call.
broadcast              the others wait for the source only and go on. The late rank
                       may pass these steps. It skips the number of each call.
```

A rank cannot see the kind of a call. If other ranks have begun two later steps, and all
of them were on time in the last one, they do not wait in calls of this loop. Before
this is known, a rank whose loop has calls after the backward passes a step only if
others have begun the second step after it. Calls before the backward need no such rule:
a rank that catches up to the step in which others wait makes the call next.

A rank that is late in its first steps does not know yet how many calls each step has.
It does these steps itself until it knows the number, or has seen that not each step has
a call.
"""

import sys
from collections import deque

__all__ = ["StrictCalls"]

_ANY = sys.maxsize
# Number of steps in a row with the same number of calls that makes this number the
# rule.
_STEADY = 3


class StrictCalls:
    """Counter of the loop's calls by step. For the training thread only.

    Attributes:
        per_step: number of calls in each step, as seen in steps in a row.
        are_free: True if other ranks do not wait for a rank that omits its calls.
    """

    def __init__(self) -> None:
        self._in_a_row: deque[int] = deque(maxlen=_STEADY)
        self._top: tuple[int, int] | None = None  # steps and calls at the last catch_up
        self._is_special = False
        self._at_hook = 0
        self._has_calls = self._has_calls_behind = False
        # True if the number of calls per step is known, or known to vary.
        self._is_known = False
        # True if no step has a call; None: not known yet.
        self._is_quiet: bool | None = None
        self.per_step = 0
        self.are_free = False

    def on_meeting(self) -> None:
        """This step has more calls than others: `Handle.every` was true in it."""
        self._is_special = True

    def on_hook(self, calls: int) -> None:
        """A backward begins, after `calls` calls."""
        self._at_hook = calls

    def on_top(self, steps: int, calls: int) -> None:
        """`catch_up` begins, after `steps` steps and `calls` calls."""
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
        """Number of further steps that this rank may pass.

        Args:
            moved: steps that this `catch_up` has passed.
            begun: number of the next steps after which others have begun a further
                step.
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
        """`limit` if the buckets are reduced on the same group as these calls.

        Buckets and calls of the loop then share one sequence of numbers, and a rank
        that passes a step would omit a call between two buckets. So the rank passes
        steps only if it knows several steps in a row without a call, and no step with a
        call since. DistributedDataParallel itself makes calls in the first steps.
        """
        return _ANY if self._is_quiet else 0

    def note_in_time(self, moved: int) -> None:
        """All other ranks were on time in the last of `moved` replayed steps."""
        self.are_free |= self.per_step > 0 and moved >= 2

    def on_moved(self, *, moved: int, made: int) -> int:
        """`catch_up` ends. Returns the number of calls that this rank has to skip.

        Args:
            moved: steps that it has passed.
            made: calls that were made in replayed steps.
        """
        if moved > 0:
            self._in_a_row.clear()
        return max(0, self.per_step * moved - made)

    def end_top(self, steps: int, calls: int) -> None:
        """Records the steps and calls that this rank has done when `catch_up`
        returns.
        """
        self._top = (steps, calls)
