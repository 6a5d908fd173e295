# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Handles that one loop steps together, such as the two models of a GAN. Pure.

Note [one count for several models]
The loop counts its iterations once, but each handle has its own `catch_up`. When a late
rank catches up, the others may have done the last step of one model and not yet that of
the next model. If each handle went as far as possible, the models would be at different
iterations, and one of them would end a step short.

So all handles that the loop steps go on by whole iterations: as many as each of them
has results for. An iteration begins when `catch_up` is called again on a handle that
was called before. The number of steps of each model per iteration is observed in
iterations without a catch-up. If two iterations in a row differ in it, each handle goes
on alone.
"""

import sys
import weakref
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ANY_STEP", "Stepped", "Together", "stepped_together"]

ANY_STEP = sys.maxsize


class Stepped(Protocol):
    """Interface of a handle."""

    @property
    def steps(self) -> int:
        """Number of optimizer steps that this rank has done."""

    def _steps_to_take(self) -> int:
        """Number of steps of other ranks that could be applied now, and may be."""


@dataclass
class _Pace:
    """Steps of one handle in the present iteration, and per iteration."""

    num_own: int = 0
    has_jumped: bool = False
    is_called: bool = False
    per_iteration: int = 0
    is_steady: bool = False
    goal: int = ANY_STEP  # the step up to which catch_up may go


class Together:
    """The handles of one process. For the training thread only."""

    def __init__(self) -> None:
        self._paces: weakref.WeakKeyDictionary[Stepped, _Pace]
        self._paces = weakref.WeakKeyDictionary()

    def add(self, handle: Stepped) -> None:
        """Adds a handle that the loop may step together with others."""
        self._paces[handle] = _Pace()

    def handles(self) -> list[Stepped]:
        """Handles that are still alive."""
        return list(self._paces)

    def on_step(self, handle: Stepped, *, is_own: bool) -> None:
        """A step of `handle` is over, in the loop or in its `catch_up`."""
        pace = self._paces.get(handle) if len(self._paces) > 1 else None
        if pace is None:
            return
        pace.num_own += is_own
        pace.has_jumped |= not is_own

    def begin(self, handle: Stepped) -> int:
        """`catch_up` begins. Returns the step up to which it may go, or ANY_STEP."""
        pace = self._paces.get(handle) if len(self._paces) > 1 else None
        if pace is None:
            return ANY_STEP
        if pace.is_called:
            self._begin_iteration()
        pace.is_called = True
        return pace.goal

    def _begin_iteration(self) -> None:
        paces = list(self._paces.values())
        # An iteration that begins with a catch-up may have fewer own steps, or none.
        is_plain = not any(pace.has_jumped for pace in paces)
        if is_plain and any(pace.num_own > 0 for pace in paces):
            for pace in paces:
                pace.is_steady = pace.num_own == pace.per_iteration
                pace.per_iteration = pace.num_own
        for pace in paces:
            pace.num_own, pace.has_jumped, pace.is_called = 0, False, False
            pace.goal = ANY_STEP
        stepped = {h: p for h, p in self._paces.items() if p.per_iteration > 0}
        if len(stepped) < 2 or not all(pace.is_steady for pace in paces):
            return
        count = min(h._steps_to_take() // p.per_iteration for h, p in stepped.items())
        for handle, pace in stepped.items():
            pace.goal = handle.steps + count * pace.per_iteration


stepped_together = Together()
