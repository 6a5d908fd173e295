# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Functions for a program that runs in a lab; outside of a lab they have no effect."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.launch import emit

# Pairs such as "0.12:0.3 2:0.5": seconds since ready, and seconds of sleep.
LATE_VARIABLE = "LAB_LATE"


class Lateness:
    """The `late` events of this rank."""

    def __init__(
        self,
        due: Iterable[tuple[float, float]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._due = sorted(due)
        self._clock, self._sleep = clock, sleep
        self._start = clock()

    def pause(self) -> float:
        """Sleeps for all `late` events that are due; returns the seconds.

        Call it where this rank may be late, such as before each allreduce.
        """
        now = self._clock() - self._start
        slept = 0.0
        while self._due and self._due[0][0] <= now:
            slept += self._due.pop(0)[1]
        if slept:
            self._sleep(slept)
        return slept


def ready() -> Lateness:
    """Tells the lab that this rank has started; the last such call is time 0 of the
    script.

    Best called after a barrier, so that the ranks agree on the time.
    """
    emit(ready=time.monotonic())
    pairs = (pair.split(":") for pair in os.environ.get(LATE_VARIABLE, "").split())
    return Lateness((float(at), float(seconds)) for at, seconds in pairs)
