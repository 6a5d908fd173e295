# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Capacity market: cost with a deadline beside uniform progress and the oracle."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._compare import Line, compare_capacity
from aikido_torch.market._deadline import DeadlineJob
from aikido_torch.market._generate import generate_capacity
from aikido_torch.market._read import read_capacity
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

ON_DEMAND, SPOT = 3.06, 0.918  # USD per hour of a V100
SETTINGS = [(deadline, overhead) for deadline in (52, 70) for overhead in (3, 12)]


@dataclass(frozen=True)
class Trace:
    """Availability of the machines of a job in some regions."""

    name: str
    gap_s: float
    available: NDArray[np.bool_]  # (regions, samples)


def recorded(folder: Path | None) -> list[Trace]:
    if folder is None:
        raise CaseError("recorded capacity: give --traces FOLDER")
    found = []
    for path in sorted((folder / "capacity").glob("*.json.gz")):
        trace = read_capacity(path)
        need = 4 if path.name.startswith("preemption_4-") else 1
        found.append(Trace(trace.name, trace.gap_s, trace.has(need)[None]))
    return found


def generated(seed: int) -> list[Trace]:
    """Markets of other shares, spells and gaps than the recorded ones."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(8):
        gap = float(random.choice([120, 300, 600]))
        trace = generate_capacity(
            days=40,
            seed=seed * 100 + number,
            share=float(random.uniform(0.2, 0.9)),
            spell_s=float(random.uniform(3600, 36000)),
            sigma=float(random.uniform(0.8, 1.8)),
            gap_s=gap,
        )
        found.append(Trace(f"generated {number}", gap, trace.has(1)[None]))
    return found


def job(deadline_h: float, overhead_min: float) -> DeadlineJob:
    return DeadlineJob(
        work_s=48 * 3600,
        deadline_s=deadline_h * 3600,
        overhead_s=overhead_min * 60,
        spot_usd_per_hour=SPOT,
        on_demand_usd_per_hour=ON_DEMAND,
    )


def means(
    traces: Sequence[Trace], context: Context
) -> tuple[dict[str, float], int, list[str]]:
    """Mean cost by policy, missed deadlines, and a line for each setting."""
    starts = context.pick(2, 6)
    all_lines: list[list[Line]] = []
    notes = []
    for place, (deadline, overhead) in enumerate(SETTINGS):
        here = []
        for number, trace in enumerate(traces):
            here.append(
                compare_capacity(
                    job(deadline, overhead), trace.available, trace.gap_s, starts=starts
                )
            )
            share = (place + (number + 1) / len(traces)) / len(SETTINGS)
            context.on_progress(share)
        usd = _usd(here)
        planner = usd["planner"]
        notes.append(
            f"{deadline} h, {overhead} min: {planner / usd['uniform progress']:.3f} of "
            f"uniform progress, {planner / usd['offline oracle']:.3f} of the oracle"
        )
        all_lines += here
    missed = sum(line.missed for lines in all_lines for line in lines)
    return _usd(all_lines), missed, notes


def _usd(runs: Sequence[Sequence[Line]]) -> dict[str, float]:
    return {
        line.policy: float(np.mean([lines[place].usd for lines in runs]))
        for place, line in enumerate(runs[0])
    }


def judged(traces: Sequence[Trace], case: Case, context: Context) -> list[Row]:
    usd, missed, notes = means(traces, context)
    return [
        case.judge(
            0,
            value=usd["planner"],
            reference=usd["uniform progress"],
            note="; ".join(notes),
        ),
        case.judge(1, value=usd["planner"], reference=usd["offline oracle"]),
        case.judge(2, value=float(missed), reference=1.0),
    ]


def measure_recorded(folder: Path | None, case: Case, context: Context) -> list[Row]:
    return judged(recorded(folder), case, context)


def measure_generated(case: Case, context: Context) -> list[Row]:
    return judged(generated(context.seed + 1), case, context)


def measure_regions(folder: Path | None, case: Case, context: Context) -> list[Row]:
    """All regions of a set together, beside uniform progress in each of them alone."""
    groups: dict[tuple[float, int], list[Trace]] = {}
    for trace in recorded(folder):
        key = (trace.gap_s, trace.available.shape[1])
        groups.setdefault(key, []).append(trace)
    several = max(groups.values(), key=len)
    together = Trace(
        "regions", several[0].gap_s, np.concatenate([t.available for t in several])
    )
    alone, _, _ = means(several, context)
    usd, missed, notes = means([together], context)
    return [
        case.judge(
            0,
            value=usd["planner"],
            reference=alone["uniform progress"],
            note="; ".join(notes),
        ),
        case.judge(1, value=float(missed), reference=1.0),
    ]


def cases(folder: Path | None) -> list[Case]:
    """The cases, with the folder of recorded markets."""
    bars = (
        Bar(what="cost", of="uniform progress", bar=0.93, unit="USD"),
        Bar(what="cost", of="the offline oracle", bar=1.12, unit="USD"),
        Bar(what="missed deadlines", of="1", bar=0.0, unit=""),
    )
    return [
        Case(
            name="capacity-recorded",
            what="48 h of work, deadlines 52 and 70 h, overheads 3 and 12 min",
            bars=bars,
            measure=functools.partial(measure_recorded, folder),
        ),
        Case(
            name="capacity-generated",
            what="the same in generated markets",
            bars=bars,
            measure=measure_generated,
        ),
        Case(
            name="capacity-regions",
            what="all regions of a recorded set together",
            bars=(
                Bar(what="cost", of="uniform progress alone", bar=0.75, unit="USD"),
                Bar(what="missed deadlines", of="1", bar=0.0, unit=""),
            ),
            measure=functools.partial(measure_regions, folder),
        ),
    ]
