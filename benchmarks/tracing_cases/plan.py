# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What goes wrong when, in a run of ranks on hosts with links of their own. Pure."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from aikido_torch.trace import StepFacts, Verdict, attribute
from benchmarks.tracing_cases.simulate import CAUSES

# Of a phase: how long something is wrong, and how long nothing is after that.
LINK_S, OTHER_S, REST_S = 3.0, 1.6, 1.0
# Links are well with so many Mbit/s each way, and slow with so many.
WELL_MBIT, SLOW_MBIT = 200, 40
LATE_S = 0.06  # what a slow rank takes longer in a step
STOP_S, STOP_EVERY_S = 0.3, 0.5
STEPS = 5  # within so many it has to be known


@dataclass(frozen=True)
class Phase:
    """Something is wrong with a rank from `at_s` on for `for_s` seconds."""

    cause: str
    rank: int
    at_s: float
    for_s: float


def phases(size: int, repeats: int, seed: int) -> list[Phase]:
    """Each cause on each rank, so many times, in random order; rests between."""
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
        for_s = LINK_S if cause.startswith("network") else OTHER_S
        found.append(Phase(cause, rank, at, for_s))
        at += for_s + REST_S
    return found


def script_of(planned: Iterable[Phase]) -> str:
    """The part of it that the lab does: links, and stopped processes."""
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
    """How much longer this rank takes now, for this cause."""
    for phase in planned:
        is_now = phase.at_s <= now_s < phase.at_s + phase.for_s
        if is_now and (phase.cause, phase.rank) == (cause, rank):
            return LATE_S
    return 0.0


@dataclass(frozen=True)
class Window:
    """Some steps, what was wrong in them, and what was said of them."""

    cause: str
    rank: int | None
    verdict: Verdict


def windows(
    planned: Iterable[Phase], steps: list[StepFacts], began_s: dict[int, float]
) -> list[Window]:
    """The first steps of each phase, and those of the rests between and behind them.

    Args:
        planned: phases.
        steps: facts of the steps.
        began_s: of each step, in the time of the phases.
    """
    found = []
    end = 0.0

    def add_well(until_s: float) -> None:
        well = [f for f in steps if end + 0.3 <= began_s[f.step] < until_s - 0.3]
        for i in range(0, len(well) - STEPS + 1, STEPS):
            found.append(Window("none", None, attribute(well[i : i + STEPS])))

    for phase in planned:
        begin = phase.at_s
        add_well(begin)
        end = begin + phase.for_s
        bad = [f for f in steps if begin <= began_s[f.step] < end][:STEPS]
        if len(bad) == STEPS:
            found.append(Window(phase.cause, phase.rank, attribute(bad)))
    add_well(float("inf"))
    return found
