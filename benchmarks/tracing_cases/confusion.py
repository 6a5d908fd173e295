# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Accuracy of the named culprit, for ranks in a lab with one faulty rank."""

import json
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from aikido_torch.trace import facts_of, read
from aikido_torch.trace.analyze._attribute import attribute_windows
from benchmarks.common import Result
from benchmarks.lab import Lab, Link, Program
from benchmarks.tracing_cases import plan
from benchmarks.tracing_cases.simulate import CAUSES, Model

RANK = Path(__file__).with_name("rank.py")
SIZE = 4
RANK_BAR, CAUSE_BAR = 0.99, 0.95
ALARM_STEPS = 10_000  # healthy steps, with at most one false alarm


def run_in_lab(
    planned: list[plan.Phase], for_s: float, keep: Path | None = None
) -> list[plan.Window]:
    """Windows of a run of `for_s` seconds with these faults.

    The traces of the ranks stay in the folder `keep`, if it is given.
    """
    links = [Link(up_mbit=plan.WELL_MBIT, down_mbit=plan.WELL_MBIT)] * SIZE
    with tempfile.TemporaryDirectory() as scratch, Lab(links) as lab:
        folder = keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        told = json.dumps([asdict(phase) for phase in planned])
        ends = lab.run(
            Program(RANK, (str(folder), told, str(for_s))),
            deadline_s=for_s + 120,
            events=plan.script_of(planned),
        )
        dumps = [read(Path(folder, f"rank{rank}.trace")) for rank in range(SIZE)]
    began = next(e["began"] for e in ends[0].events if "began" in e)
    began_s = {int(step): seconds for step, seconds in began.items()}
    facts = [each for each in facts_of(dumps) if each.step in began_s]
    return plan.windows(planned, facts, began_s)


def inject(planned: list[plan.Phase], keep: Path | None = None) -> list[plan.Window]:
    """Windows of one run with all these faults."""
    last = planned[-1]
    return run_in_lab(planned, last.at_s + last.for_s + plan.REST_S, keep)


def judge_healthy(windows: list[plan.Window], where: str) -> Result:
    """False alarms in windows without a fault."""
    alarms = sum(w.verdict.has_culprit for w in windows)
    return judge_alarms(alarms, len(windows) * plan.STEPS, where)


def judge_alarms(alarms: int, steps: int, where: str) -> Result:
    """A result for false alarms; without a bar if the steps are too few for a
    judgement.
    """
    return Result.judge(
        f"{where}: false alarms in {steps} well steps, against 1 in {ALARM_STEPS}",
        unit="",
        value=alarms,
        reference=max(1.0, steps / ALARM_STEPS),
        bar=1.0 if steps >= ALARM_STEPS else None,
    )


def judge(windows: list[plan.Window], where: str) -> list[Result]:
    """Shares of correct verdicts in windows with a fault, and false alarms in the
    others.
    """
    bad = [w for w in windows if w.cause != "none"]
    well = [w for w in windows if w.cause == "none"]
    rank = sum(w.verdict.rank == w.rank for w in bad) / len(bad)
    cause = sum(w.verdict.cause == w.cause for w in bad) / len(bad)
    alarms = sum(w.verdict.has_culprit for w in well)
    return [
        Result.judge(
            f"{where}: {what} right in the first whole window of {plan.STEPS} steps, "
            f"{len(bad)} injected",
            unit="",
            value=value,
            reference=1.0,
            bar=bar,
            better="higher",
        )
        for what, value, bar in (
            ("rank", rank, RANK_BAR),
            ("cause", cause, CAUSE_BAR),
        )
    ] + [
        Result.judge(
            f"{where}: false alarms between them, in {len(well) * plan.STEPS} steps",
            unit="",
            value=alarms,
            reference=len(well),
            bar=None,
        )
    ]


def show(windows: list[plan.Window], planned: list[plan.Phase]) -> None:
    """Prints the confusion matrix, and the wrong verdicts with their times."""
    console = Console(width=120)
    counts = Counter((w.cause, w.verdict.cause) for w in windows)
    table = Table(title="injected in rows, verdicts in columns")
    verdicts = (*CAUSES, "loop", "too short")
    for name in ("", *verdicts):
        table.add_column(name)
    for cause in CAUSES:
        table.add_row(cause, *(str(counts[cause, said] or "") for said in verdicts))
    console.print(table)
    for w in windows:
        is_well = w.cause == "none" and not w.verdict.has_culprit
        if not is_well and (w.cause, w.rank) != (w.verdict.cause, w.verdict.rank):
            console.print(f"{w.cause} on rank {w.rank}{_when(w, planned)}: {w.verdict}")


def _when(window: plan.Window, planned: list[plan.Phase]) -> str:
    if window.began_s is None:
        return ""
    first_s, last_s = window.began_s
    when = f", steps from {first_s:.1f} to {last_s:.1f} s"
    if (last := plan.latest(planned, last_s)) is None:
        return when
    till_s = last.at_s + last.for_s
    what = f"{last.cause} on rank {last.rank}"
    return f"{when} ({what} from {last.at_s:.1f} to {till_s:.1f} s)"


def simulated_alarms(steps: int, seed: int) -> Result:
    """False alarms in healthy steps of the simulator."""
    alarms = 0
    block = 1000
    for i in range(steps // block):
        facts = facts_of(Model().run([None] * (block + 1), seed=seed + i))
        alarms += sum(v.has_culprit for v in attribute_windows(facts))
    return judge_alarms(alarms, steps, "simulated")
