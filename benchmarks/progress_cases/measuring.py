# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the blocks of a case, and rows that cases share."""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab
from benchmarks.progress_cases import plan
from benchmarks.progress_cases.figures import Arms, Figures
from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import Bar, Case, Context, Row
from benchmarks.straggler_cases.links import measure
from benchmarks.straggler_cases.plan import Block, interleaved
from benchmarks.straggler_cases.runs import Record
from benchmarks.tasks import RECIPES, Task

LAB, HOST = "lab", "host"  # four hosts with slow links; four ranks of one host
CALIBRATION_STEPS = 30


def place(where: str) -> contextlib.AbstractContextManager[Lab | None]:
    """A lab, or None for ranks of this host, which share memory."""
    return runs.lab_of() if where == LAB else contextlib.nullcontext()


def train(lab: Lab | None, blocks: Sequence[Block], context: Context) -> list[Record]:
    """Runs all blocks with one set of ranks, which must end with equal parameters."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        RECIPES[Task.DIGITS].save(data, context.seed)
        return measure(
            lab,
            blocks,
            context,
            program=runs.STEP_RANK,
            extra={
                "data": str(data),
                "task": Task.DIGITS,
                "learning_rate": plan.LEARNING_RATE,
            },
        )


def usual_step_s(lab: Lab | None, block: Block, context: Context) -> float:
    """Seconds of a step of strict aikido in that loop without late ranks."""
    steps = CALIBRATION_STEPS
    usual = Block(
        name="calibration",
        arm=plan.STRICT,
        ops=steps,
        num_bytes=block.num_bytes,
        net=block.net,
        warm_up=plan.WARM_UP,
        gap_s=block.gap_s,
        fresh=True,
    )
    (record,) = train(lab, [usual], context)
    return records.median(records.step_times(record)) / 1e3


def progress_of(run: Figures) -> float:
    return run.progress


def progress_bar(bar: float, of: str, what: str = "progress") -> Bar:
    """A bar for progress: the least share of the reference's progress."""
    return Bar(what=what, of=of, bar=bar, unit="/s", better="higher")


def progress_row(
    case: Case, number: int, arms: Arms, *, reference: str, is_first: bool = True
) -> Row:
    """Progress of SkipStraggler beside that of the arm `reference`.

    The first row of a case also has the figures of all arms.
    """
    details: dict[str, Any] = {"arms": arms.as_json()} if is_first else {}
    ratios = arms.ratios("skip", reference, progress_of)
    details["ratios_by_turn"] = [round(ratio, 4) for ratio in ratios]
    return case.judge(
        number,
        value=arms.median("skip", progress_of),
        reference=arms.median(reference, progress_of),
        gloo=arms.median("gloo", progress_of) if "gloo" in arms.names() else None,
        note=arms.note() if is_first else "",
        **details,
    )


__all__ = [
    "HOST",
    "LAB",
    "interleaved",
    "place",
    "progress_bar",
    "progress_of",
    "progress_row",
    "train",
    "usual_step_s",
]
