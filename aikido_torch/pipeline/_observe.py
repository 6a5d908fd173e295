# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""How long computing and messages take while a pipeline runs.

Note [what a message takes, without a common clock]
The sender notes when it sent a message and the receiver when it was there, each by its
own clock. The difference has the unknown distance of the clocks in it, once added on
the way up and once taken off on the way down. So half the sum of both ways is what one
way takes. The shortest of a run counts: others have waited behind messages before them.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["LiveTimes", "Observer", "RankTimes", "live_times"]

# Whether it is a gradient, the stage that it comes from, and the micro-batch.
Message = tuple[bool, int, int]


@dataclass(frozen=True)
class RankTimes:
    """What one rank saw of one run, in seconds; moments are by its own clock."""

    now: float
    forwards: Mapping[int, float]  # by stage: of one micro-batch
    backwards: Mapping[int, float]
    sent: Mapping[Message, float]
    arrived: Mapping[Message, float]


@dataclass(frozen=True)
class LiveTimes:
    """The same of all ranks, as `Schedule.simulate` takes it."""

    forward: tuple[float, ...]  # by stage: of its fastest replica
    backward: tuple[float, ...]
    links: tuple[float, ...]  # from a stage to the next, each way; of the slowest pair
    slowdown: tuple[float, ...]  # by rank: beside that replica


class Observer:
    """Of one rank; `begin` for each run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """Forgets what was before."""
        self._computed: dict[tuple[bool, int], list[float]] = {}
        self._sent: dict[Message, float] = {}
        # A new one for each run: a late word of the last one changes nothing.
        self._arrived: dict[Message, float] = {}

    def computed(self, stage: int, is_backward: bool, begun: float) -> None:
        """A forward or a backward that began then has ended."""
        taken = self.clock() - begun
        self._computed.setdefault((is_backward, stage), []).append(taken)

    def sends(self, message: Message) -> None:
        """It goes out now."""
        self._sent[message] = self.clock()

    def arrival_of(self, message: Message) -> Callable[[], None]:
        """To be called when it is there, by any thread."""
        arrived, clock = self._arrived, self.clock

        def note() -> None:
            arrived[message] = clock()

        return note

    def report(self) -> RankTimes:
        """What was seen since `begin`."""

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
    """What the ranks saw together; None when a stage or a link was not seen.

    Args:
        reports: by rank, of the same run.
        stages: the ranks that have each.
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
    """One way between a rank of a stage and one of the next."""
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
