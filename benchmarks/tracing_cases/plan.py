# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Times and kinds of faults in a run of ranks on hosts with links of their own.
Pure.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aikido_torch.trace.analyze._attribute import attribute_windows
from aikido_torch.trace.analyze._step_facts import StepFacts
from aikido_torch.trace.analyze._verdict import Verdict
from benchmarks.tracing_cases.simulate import CAUSES

# Duration of a fault, and of the healthy time after it. A window that begins in a phase
# must end in it, wherever windows begin. Steps take longer if links are slow or
# processes stopped.
LONG_S, SHORT_S, REST_S = 5.0, 2.0, 1.4
# Steps that begin so shortly before or after a phase may be affected by it.
MARGIN_S = 0.3
# Mbit/s each way of healthy links, and of slow links.
WELL_MBIT, SLOW_MBIT = 200, 40
LATE_S = 0.06  # additional seconds of a slow rank per step
STOP_S, STOP_EVERY_S = 0.3, 0.5
STEPS = 5  # steps of a window


@dataclass(frozen=True)
class Phase:
    """A fault of a rank from `at_s` on for `for_s` seconds."""

    cause: str
    rank: int
    at_s: float
    for_s: float


def phases(size: int, repeats: int, seed: int) -> list[Phase]:
    """Each cause on each rank, `repeats` times, in random order, with rests in
    between.
    """
    wanted = [
        (cause, rank)
        for cause in CAUSES
        if cause != "none"
        for rank in range(size)
        for _ in range(repeats)
    ]
    random.Random(seed).shuffle(wanted)
    found, at = [], 2.0
    for cause, rank in wanted:
        for_s = SHORT_S if cause in ("compute", "input") else LONG_S
        found.append(Phase(cause, rank, at, for_s))
        at += for_s + REST_S
    return found


def script_of(planned: Iterable[Phase]) -> str:
    """The part of the faults that the lab applies: links, and stopped processes."""
    lines = []
    for phase in planned:
        at_ms, for_ms = round(phase.at_s * 1e3), round(phase.for_s * 1e3)
        if phase.cause == "host stopped":
            for i in range(int(phase.for_s / STOP_EVERY_S)):
                begin = at_ms + round(i * STOP_EVERY_S * 1e3)
                stop = f"stop member {phase.rank} for {round(STOP_S * 1e3)} ms"
                lines.append(f"at {begin} ms {stop}")
        elif phase.cause.startswith("network"):
            way = "up" if phase.cause == "network out" else "down"
            lines.append(
                f"at {at_ms} ms rate host {phase.rank} {way} {SLOW_MBIT} mbit "
                f"for {for_ms} ms"
            )
    return "\n".join(lines)


def late_s(planned: Iterable[Phase], cause: str, rank: int, now_s: float) -> float:
    """Additional seconds of this rank now, for this cause."""
    for phase in planned:
        is_now = phase.at_s <= now_s < phase.at_s + phase.for_s
        if is_now and (phase.cause, phase.rank) == (cause, rank):
            return LATE_S
    return 0.0


@dataclass(frozen=True)
class Window:
    """Some steps, their fault, and the verdict on them.

    `began_s` has the begins of the first and the last step; None if there are none.
    """

    cause: str
    rank: int | None
    verdict: Verdict
    began_s: tuple[float, float] | None


def windows(
    planned: Sequence[Phase], steps: Sequence[StepFacts], began_s: dict[int, float]
) -> list[Window]:
    """The verdicts that a user gets on consecutive windows, with the faults.

    Windows are not aligned with faults. The first window inside each phase counts; a
    phase without such a window was not found. All windows without a fault count.
    Windows on the edge of a phase count only if they blame a healthy rank.

    Args:
        planned: phases.
        steps: facts of the steps.
        began_s: begin of each step, in the time of the phases.
    """
    steps = list(steps)
    found: dict[Phase, Window] = {}
    well = []
    for i, verdict in enumerate(attribute_windows(steps, size=STEPS)):
        times = [began_s[f.step] for f in steps[i * STEPS : (i + 1) * STEPS]]
        if len(times) < STEPS:
            continue
        near = [p for p in planned if _is_near(p, times[0], times[-1])]
        inside = [p for p in near if all(_begins_in(p, t) for t in times)]
        for phase in inside:
            found.setdefault(
                phase, Window(phase.cause, phase.rank, verdict, (times[0], times[-1]))
            )
        blamed = verdict.cause, verdict.rank
        is_true = not verdict.has_culprit or blamed in [(p.cause, p.rank) for p in near]
        if not near or not (inside or is_true):
            well.append(Window("none", None, verdict, (times[0], times[-1])))
    for phase in planned:
        found.setdefault(phase, Window(phase.cause, phase.rank, _NOT_SEEN, None))
    return [*found.values(), *well]


def latest(planned: Iterable[Phase], at_s: float) -> Phase | None:
    """The phase that began last until then."""
    begun = [phase for phase in planned if phase.at_s <= at_s]
    return max(begun, key=lambda phase: phase.at_s, default=None)


_NOT_SEEN = Verdict("none", None, "none", 0.0, 0, 0, "No window lies in the phase.")


def _begins_in(phase: Phase, at_s: float) -> bool:
    return phase.at_s <= at_s < phase.at_s + phase.for_s


def _is_near(phase: Phase, first_s: float, last_s: float) -> bool:
    begin, end = phase.at_s - MARGIN_S, phase.at_s + phase.for_s + MARGIN_S
    return first_s < end and last_s >= begin
