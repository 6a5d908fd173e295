# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Observed times of computation and messages in a running pipeline.

Note [message times without a common clock]
The sender notes when it sent a message, and the receiver when it arrived, each by its
own clock. The difference contains the unknown offset of the clocks, with a positive
sign in one direction and a negative sign in the other. So half the sum of both
directions is the time of one way. The shortest time of a run counts, because other
messages have waited behind messages before them.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["LiveTimes", "Observer", "RankTimes", "live_times"]

# True for a gradient, the stage that it comes from, and the micro-batch.
Message = tuple[bool, int, int]


@dataclass(frozen=True)
class RankTimes:
    """Observations of one rank in one run, in seconds by its own clock."""

    now: float
    forwards: Mapping[int, float]  # by stage: seconds of one micro-batch
    backwards: Mapping[int, float]
    sent: Mapping[Message, float]
    arrived: Mapping[Message, float]


@dataclass(frozen=True)
class LiveTimes:
    """Combined observations of all ranks, in the form that `Schedule.simulate`
    takes.
    """

    forward: tuple[float, ...]  # by stage: seconds of its fastest replica
    backward: tuple[float, ...]
    # From a stage to the next, per direction; of the slowest pair of ranks.
    links: tuple[float, ...]
    slowdown: tuple[float, ...]  # by rank: factor relative to the fastest replica


class Observer:
    """Recorder of one rank; call `begin` before each run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """Forgets the earlier observations."""
        self._computed: dict[tuple[bool, int], list[float]] = {}
        self._sent: dict[Message, float] = {}
        # A new dict for each run, so that a late callback of the last run has no
        # effect.
        self._arrived: dict[Message, float] = {}

    def computed(self, stage: int, is_backward: bool, begun: float) -> None:
        """A forward or a backward that began at `begun` has ended."""
        taken = self.clock() - begun
        self._computed.setdefault((is_backward, stage), []).append(taken)

    def sends(self, message: Message) -> None:
        """The message is sent now."""
        self._sent[message] = self.clock()

    def arrival_of(self, message: Message) -> Callable[[], None]:
        """A function to call, on any thread, when the message has arrived."""
        arrived, clock = self._arrived, self.clock

        def note() -> None:
            arrived[message] = clock()

        return note

    def report(self) -> RankTimes:
        """Observations since `begin`."""

        def medians(is_backward: bool) -> dict[int, float]:
            return {
                stage: statistics.median(taken)
                for (backward, stage), taken in self._computed.items()
                if backward == is_backward
            }

        return RankTimes(
            self.clock(),
            medians(False),
            medians(True),
            self._sent,
            dict(self._arrived),
        )


def live_times(
    reports: Sequence[RankTimes], stages: Sequence[Sequence[int]]
) -> LiveTimes | None:
    """Combines the observations; None if a stage or a link was not observed.

    Args:
        reports: by rank, of the same run.
        stages: for each stage the ranks that have it.
    """
    forward, backward = [], []
    slowdown = [1.0] * len(reports)
    for stage, ranks in enumerate(stages):
        seen = {r: reports[r] for r in ranks if stage in reports[r].backwards}
        if not seen:
            return None
        total = {r: of.forwards[stage] + of.backwards[stage] for r, of in seen.items()}
        fastest = min(total, key=lambda rank: total[rank])
        forward.append(seen[fastest].forwards[stage])
        backward.append(seen[fastest].backwards[stage])
        for rank, seconds in total.items():
            slowdown[rank] = seconds / max(total[fastest], 1e-9)
    links: list[float] = []
    for below, above in itertools.pairwise(stages):
        stage = len(links)
        taken = [
            pair
            for low in below
            for high in above
            if (pair := _between(reports[low], reports[high], stage)) is not None
        ]
        if not taken:
            return None
        links.append(max(taken))
    return LiveTimes(tuple(forward), tuple(backward), tuple(links), tuple(slowdown))


def _between(low: RankTimes, high: RankTimes, stage: int) -> float | None:
    """Seconds of one way between a rank of a stage and a rank of the next stage."""
    up = _shortest(low, high, is_gradient=False, stage=stage)
    down = _shortest(high, low, is_gradient=True, stage=stage + 1)
    return None if up is None or down is None else max(0.0, (up + down) / 2)


def _shortest(
    sender: RankTimes, receiver: RankTimes, *, is_gradient: bool, stage: int
) -> float | None:
    taken = [
        receiver.arrived[message] - moment
        for message, moment in sender.sent.items()
        if message[:2] == (is_gradient, stage) and message in receiver.arrived
    ]
    return min(taken, default=None)
