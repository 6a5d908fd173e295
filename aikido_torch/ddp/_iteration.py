# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What an iteration computes and when, as it was seen, and the graph that follows.

Note [the graph of an iteration]
Eager PyTorch computes in the order of the program, one operation after another, so what
an iteration computes is a chain, cut where a gradient becomes ready and where a
parameter is used first. Its transfers hang between: from the piece that makes the
gradient to the piece that needs the parameter, in the next iteration. The graph begins
with the last first use in a forward: then all parameters are there and nothing is on
the link. It ends at the same place one iteration later, so that its length is the time
from iteration to iteration.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aikido_torch import _C

__all__ = ["Iteration", "IterationWatch", "graph_of", "typical"]

Marks = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Iteration:
    """Seconds of computing from one step to the next, without what was waited.

    Attributes:
        uses: when the forward used a parameter first, in this order.
        ready: when a gradient was ready, in this order.
        compute_s: of the whole.
        seconds: of the whole, with what was waited.
    """

    uses: Marks
    ready: Marks
    compute_s: float
    seconds: float


class IterationWatch:
    """Makes iterations of events. For one thread, or under a lock.

    Args:
        clock: in seconds.
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
        """The forward is about to use it, and has waited for it."""
        if name not in self._uses:
            self._uses[name] = self._now_s()

    def ready(self, name: str) -> None:
        """Its gradient is there."""
        if name not in self._ready:
            self._ready[name] = self._now_s()

    def wait(self, call: Callable[[], object]) -> None:
        """What passes in the call is no computing."""
        begin = self._clock()
        try:
            call()
        finally:
            self._waited_s += self._clock() - begin

    def step(self) -> Iteration:
        """The iteration up to this step; the next one begins."""
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
    """Medians over iterations, in the orders of the last one. Requires: at least one.

    Marks that an iteration has not got do not count for it.
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


def graph_of(
    iteration: Iteration, num_bytes: Mapping[str, int], link: _C.LinkCost
) -> _C.OpGraph:
    """From the last first use of one iteration to that of the next.

    Args:
        num_bytes: by name, of the gradients that are transferred; what was not used or
            not ready has no transfer.
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
    # A piece ends where its marks are, so what uses them is the piece behind it.
    for (_, _, marks), (after, _, _) in itertools.pairwise(forward):
        edges += [(mark, after) for mark in marks]
    return _C.OpGraph(ops, edges)


def _pieces(
    title: str, begin: float, marks: Sequence[tuple[str, float]], end: float
) -> list[tuple[str, float, list[str]]]:
    """(name, seconds, marks at its end) of what lies between the marks, and behind."""
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
