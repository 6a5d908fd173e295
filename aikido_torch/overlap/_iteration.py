# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Observed times of an iteration, and the operation graph that follows from them.

Note [the graph of an iteration]
Eager PyTorch computes in the order of the program, one operation after another. So the
computation of an iteration is a chain, cut at two kinds of marks: a gradient becomes
ready, or a parameter is used first. A transfer leads from the piece that makes a
gradient to the piece of the next iteration that needs the parameter. The graph begins
at the last first use in a forward. At this moment all parameters have arrived and the
link is idle. The graph ends at the same place one iteration later, so its length is the
time of one iteration.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from aikido_torch import _C

__all__ = ["Iteration", "IterationWatch", "graph_of", "slowest", "typical"]

Marks = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Iteration:
    """Observed times of one iteration, in seconds of computing (waits are excluded).

    Attributes:
        uses: name and time of the first use of each parameter by the forward, in order.
        ready: name and time at which each gradient was ready, in order.
        compute_s: duration of the whole iteration without waits.
        seconds: duration of the whole iteration with waits.
    """

    uses: Marks
    ready: Marks
    compute_s: float
    seconds: float


class IterationWatch:
    """Recorder that makes iterations of events. For one thread, or under a lock.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()
        self._waited_s = 0.0
        self._uses: dict[str, float] = {}
        self._ready: dict[str, float] = {}

    def _now_s(self) -> float:
        return self._clock() - self._begin - self._waited_s

    def use(self, name: str) -> None:
        """The forward is about to use the parameter, and has waited for it."""
        if name not in self._uses:
            self._uses[name] = self._now_s()

    def ready(self, name: str) -> None:
        """The gradient of the parameter is ready."""
        if name not in self._ready:
            self._ready[name] = self._now_s()

    def wait(self, call: Callable[[], float | None]) -> None:
        """Runs `call`, a wait, and excludes its time from the computation.

        Args:
            call: returns the time by the clock of the event that it waits for, or None.
                Afterwards this thread waits for a core, which counts as computation.
        """
        begin = self._clock()
        until: float | None = None
        try:
            until = call()
        finally:
            now = self._clock()
            until = now if until is None else min(max(begin, until), now)
            self._waited_s += until - begin

    def step(self) -> Iteration:
        """Ends the present iteration and returns it."""
        seen = Iteration(
            uses=tuple(self._uses.items()),
            ready=tuple(self._ready.items()),
            compute_s=self._now_s(),
            seconds=self._clock() - self._begin,
        )
        self._begin, self._waited_s = self._clock(), 0.0
        self._uses.clear()
        self._ready.clear()
        return seen


def typical(iterations: Sequence[Iteration]) -> Iteration:
    """Medians over iterations, in the order of the last one.

    If an iteration lacks a mark, the median of this mark skips the iteration.

    Args:
        iterations: at least one.
    """

    def medians(of: Callable[[Iteration], Marks]) -> Marks:
        by_name: dict[str, list[float]] = {name: [] for name, _ in of(iterations[-1])}
        for iteration in iterations:
            for name, at_s in of(iteration):
                if name in by_name:
                    by_name[name].append(at_s)
        found = [(name, statistics.median(at)) for name, at in by_name.items()]
        return tuple(sorted(found, key=lambda mark: mark[1]))

    return Iteration(
        uses=medians(lambda it: it.uses),
        ready=medians(lambda it: it.ready),
        compute_s=statistics.median(it.compute_s for it in iterations),
        seconds=statistics.median(it.seconds for it in iterations),
    )


def slowest(
    by_rank: Sequence[Iteration], computing_s: Sequence[Sequence[float]]
) -> Iteration:
    """The iteration of a rank that computes as long as the slowest rank of each step.

    All ranks wait for the slowest one. On a busy machine that is another rank in each
    step, so no rank's own median is long enough.

    Args:
        by_rank: typical ones.
        computing_s: of each rank, seconds of computing in the same iterations.
    """
    found = max(by_rank, key=lambda iteration: iteration.compute_s)
    longest = sorted(max(each) for each in zip(*computing_s, strict=False))
    if not longest or found.compute_s <= 0:
        return found
    factor = statistics.mean(longest[1:-1] or longest) / found.compute_s

    def scaled(marks: Marks) -> Marks:
        return tuple((name, factor * at_s) for name, at_s in marks)

    return replace(
        found,
        uses=scaled(found.uses),
        ready=scaled(found.ready),
        compute_s=factor * found.compute_s,
    )


def graph_of(
    iteration: Iteration, num_bytes: Mapping[str, int], link: _C.LinkCost
) -> _C.OpGraph:
    """The operation graph from the last first use to that of the next iteration.

    Args:
        iteration: the observed times.
        num_bytes: bytes of each transferred gradient, by name. Parameters that were not
            used or had no gradient get no transfer.
        link: cost of a transfer.
    """
    uses = [(name, at) for name, at in iteration.uses if name in num_bytes]
    used = {name for name, _ in uses}
    ready = [(name, at) for name, at in iteration.ready if name in used]
    is_ready = {name for name, _ in ready}
    uses = [(name, at) for name, at in uses if name in is_ready]
    last_use = max((at for _, at in uses), default=0.0)
    backward = _pieces("backward", last_use, ready, iteration.compute_s)
    forward = _pieces("forward", 0.0, uses, last_use)
    ops = [_C.Op.compute(name, time_s=time_s) for name, time_s, _ in backward]
    ops += [
        _C.Op.transfer(name, time_s=link.time_s(num_bytes[name]), bytes=num_bytes[name])
        for name, _ in uses
    ]
    ops += [_C.Op.compute(name, time_s=time_s) for name, time_s, _ in forward]
    chain = [name for name, _, _ in (*backward, *forward)]
    edges = list(itertools.pairwise(chain))
    edges += [(name, mark) for name, _, marks in backward for mark in marks]
    # A piece ends at its marks, so the following piece uses the marked parameters.
    for (_, _, marks), (after, _, _) in itertools.pairwise(forward):
        edges += [(mark, after) for mark in marks]
    return _C.OpGraph(ops, edges)


def _pieces(
    title: str, begin: float, marks: Sequence[tuple[str, float]], end: float
) -> list[tuple[str, float, list[str]]]:
    """(name, seconds, marks at its end) of the pieces between marks."""
    found: list[tuple[str, float, list[str]]] = []
    at_s = begin
    for name, mark_s in marks:
        if found and mark_s <= at_s:
            found[-1][2].append(name)
            continue
        found.append((f"{title} until {name}", max(0.0, mark_s - at_s), [name]))
        at_s = max(at_s, mark_s)
    found.append((f"{title}, the rest", max(0.0, end - at_s), []))
    return found
