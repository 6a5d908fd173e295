# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Accuracy of traces in finding the rank that others wait for, and their cost.

    python benchmarks/tracing.py                    # everything, some minutes
    python benchmarks/tracing.py --only overhead
    python benchmarks/tracing.py --full             # as the bars require, an hour

One of four ranks has a fault for a while: it computes for longer, its data arrive late,
the uplink or downlink of its host is slow, or its process is stopped. The hosts are
network namespaces (benchmarks/lab), so that needs root.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common, programs
from benchmarks.instructions import NotCountedError
from benchmarks.lab import Lab
from benchmarks.straggler_cases import command
from benchmarks.tracing_cases import confusion, instructions, memory, overhead, plan


@dataclass(frozen=True)
class Part:
    """A measurement, its bar, and its usual and full length."""

    what: str
    bar: str
    usual: int
    full: int
    unit: str


PARTS = {
    "confusion": Part(
        f"{confusion.SIZE} hosts, a cause that is injected into each rank again and "
        "again",
        f"rank right in {confusion.RANK_BAR:.0%}, cause in {confusion.CAUSE_BAR:.0%}",
        2,
        10,
        "of each cause and rank",
    ),
    "healthy": Part(
        f"{confusion.SIZE} hosts, nothing wrong",
        f"1 false alarm in {confusion.ALARM_STEPS} steps",
        120,
        1100,
        "seconds",
    ),
    "simulated": Part(
        "the same, simulated",
        f"1 false alarm in {confusion.ALARM_STEPS} steps",
        10_000,
        100_000,
        "steps",
    ),
    "overhead": Part(
        "steps of a model in wall time, with and without tracing",
        f"disarmed {overhead.DISARMED_BAR:g}, armed {overhead.ARMED_BAR:g} of without",
        2000,
        12_000,
        "steps of each arm",
    ),
    "processor": Part(
        "the same in time of processors",
        f"disarmed {overhead.DISARMED_BAR:g}, armed {overhead.ARMED_BAR:g} of without",
        500,
        3000,
        "steps of each arm",
    ),
    "instructions": Part(
        "instructions of tracing, beside those of a step of the demo's model; needs "
        "valgrind",
        f"disarmed {overhead.DISARMED_BAR:g}, armed {overhead.ARMED_BAR:g} of without",
        200,
        2000,
        "steps",
    ),
    "memory": Part(
        "resident memory while it is armed and disarmed again and again",
        f"{memory.BAR:g} of that with full rings",
        10_000,
        100_000,
        "steps",
    ),
}


def show_parts() -> None:
    table = Table("part", "what", "bar", "as a rule", "--full")
    for name, part in PARTS.items():
        lengths = (f"{part.usual:,} {part.unit}", f"{part.full:,} {part.unit}")
        table.add_row(name, part.what, part.bar, *lengths)
    Console().print(table)


def main(
    only: Annotated[str | None, typer.Option(help=", ".join(PARTS))] = None,
    full: command.Full = False,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Repetitions per cause and rank.")
    ] = None,
    overhead_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each arm.")
    ] = None,
    processor_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each arm.")
    ] = None,
    healthy_s: Annotated[
        int | None, typer.Option(min=5, help="Seconds without a fault.")
    ] = None,
    simulated: Annotated[
        int | None, typer.Option(min=1000, help="Number of steps.")
    ] = None,
    counted_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps with measured processor time.")
    ] = None,
    memory_steps: Annotated[
        int | None, typer.Option(min=1, help="Number of steps.")
    ] = None,
    seed: int = 0,
    keep: Annotated[
        Path | None, typer.Option(help="Folder for the traces of the ranks.")
    ] = None,
    json: common.JsonPath = None,
    show_list: command.ShowList = False,
) -> None:
    """Injects causes, counts verdicts, and times steps."""
    if show_list:
        show_parts()
        return
    if only is not None and only not in PARTS:
        raise typer.BadParameter(f"--only is {only!r}; it takes {', '.join(PARTS)}")

    def length(part: str, given: int | None) -> int:
        if given is not None:
            return given
        return PARTS[part].full if full else PARTS[part].usual

    results: list[common.Result] = []
    if only in (None, "simulated"):
        results.append(confusion.simulated_alarms(length("simulated", simulated), seed))
    if only in (None, "confusion", "healthy") and (reason := Lab.unavailable()):
        raise SystemExit(reason)
    if only in (None, "confusion"):
        planned = plan.phases(confusion.SIZE, length("confusion", repeats), seed)
        windows = confusion.inject(planned, keep and keep / "confusion")
        confusion.show(windows, planned)
        results += confusion.judge(windows, "4 hosts")
    if only in (None, "healthy"):
        for_s = length("healthy", healthy_s)
        windows = confusion.run_in_lab([], for_s, keep and keep / "healthy")
        confusion.show(windows, [])
        results.append(confusion.judge_healthy(windows, "4 hosts"))
    if only in (None, "overhead"):
        results += overhead.measure_wall(length("overhead", overhead_steps))
    if only in (None, "processor"):
        results += overhead.measure_processor(length("processor", processor_steps))
    if only in (None, "instructions"):
        try:
            results += instructions.measure(length("instructions", counted_steps))
        except (NotCountedError, programs.BuildError) as error:
            raise SystemExit(str(error)) from None
    if only in (None, "memory"):
        results.append(memory.measure(length("memory", memory_steps)))
    common.report(results, json)


if __name__ == "__main__":
    typer.run(main)
