# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Simulated traces of ranks that compute, wait for data, are stopped, and exchange
shards.

Links have known rates, and each rank has a clock of its own.
"""

import random
from dataclasses import dataclass, field

from aikido_torch.trace.record._dump import Clock, Dump
from aikido_torch.trace.record._spans import Kind, Span

CAUSES = ("compute", "input", "network in", "network out", "host stopped", "none")
NAMES = ["default", "data", "forward", "backward", "optimizer", "wait"]
_STOP_LOOK_S = 0.02


@dataclass(frozen=True)
class Injected:
    """Fault of a rank in a step.

    Attributes:
        cause: one of CAUSES.
        rank: the rank.
        seconds: additional time of computation, wait or stop.
        factor: factor by which its link is slower.
    """

    cause: str
    rank: int
    seconds: float = 0.05
    factor: float = 10.0


@dataclass
class Model:
    """Ranks and the times of their steps.

    Attributes:
        size: number of ranks.
        work_s: forward, backward and optimizer.
        input_s: wait for data.
        num_bytes: bytes of the gradients.
        rate: bytes per second of each direction of each link.
        noise: standard deviation of the logarithm of all times.
        hiccup_share: share of steps in which some rank is delayed briefly.
        hiccup_s: the longest such delay.
    """

    size: int = 4
    work_s: float = 0.04
    input_s: float = 0.002
    num_bytes: int = 1 << 20
    rate: float = 200e6
    noise: float = 0.1
    hiccup_share: float = 0.02
    hiccup_s: float = 0.02
    _random: random.Random = field(default_factory=random.Random)

    def run(self, steps: list[Injected | None], seed: int) -> list[Dump]:
        """The dumps of all ranks, with one step for each element of `steps`."""
        self._random.seed(seed)
        spans: list[list[Span]] = [[] for _ in range(self.size)]
        ends = [1.0 + self._random.uniform(0, 0.01) for _ in range(self.size)]
        for step, injected in enumerate(steps):
            ends = self._step(step, injected, ends, spans)
        dumps = []
        for rank in range(self.size):
            ahead = rank * self._random.randrange(-(10**9), 10**9)
            own = [
                s._replace(
                    begin_ns=s.begin_ns + ahead,
                    first_ns=s.first_ns + ahead if s.first_ns else 0,
                    end_ns=s.end_ns + ahead,
                )
                for s in spans[rank]
            ]
            dumps.append(
                Dump(
                    rank=rank,
                    size=self.size,
                    job="simulated",
                    names=NAMES,
                    operations={1: "all_reduce"},
                    spans=own,
                    clock=Clock(offset_ns=-ahead),
                    host=f"host {rank}",
                )
            )
        return dumps

    def _takes(self, seconds: float) -> float:
        return seconds * self._random.lognormvariate(0, self.noise)

    def _hiccup(self) -> float:
        if self._random.random() < self.hiccup_share:
            return self._random.uniform(0, self.hiccup_s)
        return 0.0

    def _step(
        self,
        step: int,
        injected: Injected | None,
        begins: list[float],
        spans: list[list[Span]],
    ) -> list[float]:
        calls = []
        stopped: dict[int, tuple[float, float]] = {}
        for rank, begin in enumerate(begins):
            hit = injected if injected and injected.rank == rank else None
            calls.append(self._own(step, rank, begin, hit, spans[rank], stopped))
        flows = self._exchange(step, calls, injected, stopped, spans)
        ends = []
        for rank in range(self.size):
            end = max([calls[rank], *(flows[s, rank] for s in range(self.size))])
            late = max(range(self.size), key=lambda r: calls[r])
            first = max(calls[rank], calls[late])
            spans[rank].append(
                _span(
                    Kind.OPERATION, calls[rank], end, first_ns=round(first * 1e9),
                    number=step + 1, step=step, detail=1, bytes=self.num_bytes,
                    peer=late if first > calls[rank] else -1,
                )
            )  # fmt: skip
            ends.append(end)
        return ends

    def _own(
        self,
        step: int,
        rank: int,
        begin: float,
        hit: Injected | None,
        spans: list[Span],
        stopped: dict[int, tuple[float, float]],
    ) -> float:
        """Data and computation of a rank. Returns the time of its call."""
        cause = hit.cause if hit else ""
        extra = hit.seconds if hit else 0.0
        data = self._takes(self.input_s) + (extra if cause == "input" else 0.0)
        work = self._takes(self.work_s) + self._hiccup()
        work += extra if cause in ("compute", "host stopped") else 0.0
        forward = begin + data + 0.3 * work
        call = begin + data + work
        if cause == "host stopped":
            at = begin + data + 0.5 * (work - extra)
            stopped[rank] = (at, at + extra + self._random.uniform(0, _STOP_LOOK_S))
            spans.append(_span(Kind.STOP, *stopped[rank], step=step))
        for name, b, e in (
            ("data", begin, begin + data),
            ("forward", begin + data, forward),
            ("backward", forward, call),
        ):
            section = {"name": NAMES.index(name), "step": step}
            spans.append(_span(Kind.SECTION, b, e, **section))
        return call

    def _exchange(
        self,
        step: int,
        calls: list[float],
        injected: Injected | None,
        stopped: dict[int, tuple[float, float]],
        spans: list[list[Span]],
    ) -> dict[tuple[int, int], float]:
        """Contributions to owners and results from them. Returns the arrival of each
        result.
        """
        share = self.num_bytes // self.size

        def flow(source: int, target: int, begin: float, detail: int) -> float:
            pace = (self.size - 1) / self.rate
            for cause, rank in (("network out", source), ("network in", target)):
                if injected and (injected.cause, injected.rank) == (cause, rank):
                    pace *= injected.factor
            end = begin + self._takes(share * pace) + self._hiccup()
            for rank in (source, target):
                stop = stopped.get(rank, (end, begin))
                if stop[0] < end and begin < stop[1]:
                    end = max(end, stop[1])
            spans[target].append(
                _span(
                    Kind.RECEIVE_CHUNK, begin, end, number=step + 1, peer=source,
                    bytes=share, detail=detail, shard=target,
                )
            )  # fmt: skip
            return end

        ranks = range(self.size)
        folded = [
            max([calls[t], *(flow(s, t, calls[s], 1) for s in ranks if s != t)])
            for t in ranks
        ]
        return {
            (s, t): folded[s] if s == t else flow(s, t, folded[s], 2)
            for s in ranks
            for t in ranks
        }


def _span(kind: Kind, begin: float, end: float, **fields: int) -> Span:
    values = dict.fromkeys(Span._fields, 0) | {"step": -1, "peer": -1, "kind": kind}
    values |= {"begin_ns": round(begin * 1e9), "end_ns": round(end * 1e9)}
    return Span(**(values | fields))
