# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Verdicts on trainings of this machine whose ranks are late on purpose."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from aikido_torch.testing import run_ranks
from aikido_torch.trace import attribute, facts_of
from aikido_torch.trace.analyze._verdict import Verdict
from benchmarks.common import Result
from benchmarks.lab import Lab
from benchmarks.tracing_cases import confusion, plan
from benchmarks.verdict_cases.training import STEPS, Disturbance, Phase, train

SIZES = (2, 4)
WRAPPERS = ("ddp", "fsdp2", "pipeline")
BAR = 0.99
DEADLINE_S = 400.0
MOST_REPEATS = 2  # repetitions of a phase whose verdict the machine may have spoilt


@dataclass(frozen=True)
class Seen:
    """A phase of a training, and the verdict on it."""

    where: str
    phase: Phase
    verdict: Verdict
    disturbance: Disturbance | None = None

    @property
    def is_right(self) -> bool:
        """True if exactly the late ranks are named, or none if none is late."""
        if self.phase.cause == "none":
            return not self.verdict.has_culprit
        if self.verdict.cause != self.phase.cause:
            return False
        if self.phase.in_turn:
            return self.verdict.pattern == "rotating"
        return self.verdict.ranks == self.phase.ranks

    @property
    def is_doubtful(self) -> bool:
        """True if the verdict is wrong and the machine took time from a rank."""
        disturbed = self.disturbance is not None and self.disturbance.size > 1
        return disturbed and not self.is_right


def phases(size: int, wrapper: str) -> list[Phase]:
    """Phases with no late rank, one, half, and each in turn, for each cause."""
    causes = ["compute", "loop", "host stopped"]
    if wrapper != "pipeline":  # the loop passes the batches of a pipeline
        causes.insert(1, "input")
    found = [Phase("none", ())]
    for cause in causes:
        found.append(Phase(cause, (size - 1,)))
        if size > 2:
            found.append(Phase(cause, tuple(range(size // 2))))
        found.append(Phase(cause, tuple(range(size)), in_turn=True))
    return found


def run(size: int, wrapper: str) -> list[Seen]:
    """All phases of one training.

    A phase that the machine disturbed and that was judged wrongly is repeated in a
    training of its own. A wrong verdict without a disturbance stays wrong.
    """
    found = _train(size, wrapper, phases(size, wrapper))
    for _ in range(MOST_REPEATS):
        again = [i for i, seen in enumerate(found) if seen.is_doubtful]
        if not again:
            break
        for i, seen in zip(
            again, _train(size, wrapper, [found[i].phase for i in again]), strict=True
        ):
            found[i] = seen
    return found


def _train(size: int, wrapper: str, planned: list[Phase]) -> list[Seen]:
    ranks = run_ranks(size, train, wrapper, planned, deadline=DEADLINE_S)
    where = f"{size} ranks, {wrapper}"
    found = []
    for number, phase in enumerate(planned):
        dumps = [phases[number][0] for phases in ranks]
        verdict = attribute(facts_of(dumps)[-STEPS:])
        found.append(Seen(where, phase, verdict, disturbance=ranks[0][number][1]))
    return found


def run_network() -> list[Seen]:
    """Slow links of one host of four; needs root."""
    planned = [
        plan.Phase(cause, rank, 2.0 + i * (plan.LONG_S + plan.REST_S), plan.LONG_S)
        for i, (cause, rank) in enumerate([("network out", 1), ("network in", 2)])
    ]
    windows = confusion.inject(planned)
    return [
        Seen("4 hosts, ddp", Phase(w.cause, (w.rank,)), w.verdict)
        for w in windows
        if w.rank is not None
    ]


def measure() -> list[Seen]:
    """All measurements, one training after the other."""
    found = [
        seen for size in SIZES for wrapper in WRAPPERS for seen in run(size, wrapper)
    ]
    if Lab.unavailable() is None:
        found += run_network()
    return found


def show(all_seen: list[Seen]) -> None:
    """Prints each phase, and the evidence of wrong verdicts.

    The column "waits" has the share of time in which threads of a rank waited for a
    core, and the longest wait of a step. "no?" is a wrong verdict in a phase that the
    machine disturbed.
    """
    console = Console(width=118)
    table = Table(title="injected on purpose, and said")
    for name in ("where", "cause", "ranks", "said", "of ranks", "pattern", "right"):
        table.add_column(name)
    table.add_column("waits", justify="right")
    for seen in all_seen:
        ranks = "in turn" if seen.phase.in_turn else str(seen.phase.ranks)
        v, d = seen.verdict, seen.disturbance
        table.add_row(
            seen.where, seen.phase.cause, ranks, v.cause, str(v.ranks), v.pattern,
            "yes" if seen.is_right else "[bold red]no[/]" + "?" * seen.is_doubtful,
            "" if d is None else f"{d.share:.0%}, {1e3 * d.longest_s:.0f} ms",
        )  # fmt: skip
    console.print(table)
    for seen in all_seen:
        if not seen.is_right:
            console.print(f"{seen.where}, {seen.phase}: {seen.verdict.evidence}")


def judge(all_seen: list[Seen]) -> list[Result]:
    """A row for each training."""
    results = []
    for where in dict.fromkeys(seen.where for seen in all_seen):
        own = [seen for seen in all_seen if seen.where == where]
        results.append(
            Result.judge(
                f"live, {where}, {len(own)} phases: ranks and cause right",
                unit="",
                value=sum(seen.is_right for seen in own) / len(own),
                reference=1.0,
                bar=BAR,
                better="higher",
            )
        )
    return results
