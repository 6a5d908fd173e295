# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trains the same model twice with one rank that is often late: wait, then skip.

Four ranks train a small network on scikit-learn's handwritten digits, or one that
guesses the next character of a text (`--task text`). The last rank sleeps before the
backward pass in a third of its steps. `wait_all` waits for it, as every strict
allreduce does; `skip` goes on without it when waiting costs more than its contribution
is worth.
"""

import contextlib
import enum
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.demo_plan import Plan
from benchmarks.launch import RanksFailedError, run_ranks
from benchmarks.models import RECIPES, Task

LIMIT_S = 600


class Mode(enum.StrEnum):
    """What the group does about a late rank."""

    WAIT_ALL = "wait_all"
    SKIP = "skip"


class StepBar:
    """Steps of one run: a bar on a terminal, a line per quarter elsewhere."""

    def __init__(self, console: Console, label: str, steps: int):
        self._console = console
        self._label = label
        self._steps = steps
        self._quarter = 0
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("steps"),
                Elapsed(),
                console=console,
            )
            self._task = self._bar.add_task(label, total=steps)

    def __enter__(self) -> "StepBar":
        if self._bar:
            self._bar.start()
        else:
            self._console.print(f"{self._label}: starting the ranks")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, step: int) -> None:
        if self._bar:
            self._bar.update(self._task, completed=step)
        elif 4 * step // self._steps > self._quarter:
            self._quarter = 4 * step // self._steps
            self._console.print(f"{self._label}: step {step} of {self._steps}")


def run_mode(console: Console, plan: Plan) -> dict:
    """One run in one mode; returns its row of the result."""
    found: dict = {}
    with StepBar(console, f"{plan.mode:>8}", plan.steps) as bar:

        def on_event(event: dict) -> None:
            bar.show(event.get("step", plan.steps))
            found.update(event.get("result", {}))

        run_ranks(
            "demo_train.py",
            plan.to_json(),
            num_ranks=plan.num_ranks,
            limit_s=LIMIT_S,
            on_event=on_event,
        )
    curve = found.pop("curve")
    target = RECIPES[Task(plan.task)].target_accuracy
    reached = [c["seconds"] for c in curve if c["accuracy"] >= target]
    return {
        "seconds": found["seconds"],
        "steps_per_second": found["steps_per_second"],
        "seconds_to_target": reached[0] if reached else None,
        "accuracy": curve[-1]["accuracy"],
        "skipped": found["skipped"],
        "hashes_equal": found["hashes_equal"],
    }


def comparison(results: dict[str, dict], target: float) -> Table:
    def seconds(value: float | None) -> str:
        return "not reached" if value is None else f"{value:.2f}"

    rows = (
        ("seconds", lambda r: seconds(r["seconds"])),
        ("steps per second", lambda r: f"{r['steps_per_second']:.1f}"),
        (
            f"seconds to {target:.0%} test accuracy",
            lambda r: seconds(r["seconds_to_target"]),
        ),
        ("final test accuracy", lambda r: f"{r['accuracy']:.1%}"),
        ("contributions skipped, by rank", lambda r: " ".join(map(str, r["skipped"]))),
        (
            "parameters equal on all ranks",
            lambda r: "yes" if r["hashes_equal"] else "NO",
        ),
    )
    table = Table()
    table.add_column("")
    for mode in results:
        table.add_column(mode, justify="right")
    for name, cell in rows:
        table.add_row(name, *(cell(result) for result in results.values()))
    return table


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    steps: Annotated[int, typer.Option(min=5, help="Optimizer steps per mode.")] = 300,
    delay_ms: Annotated[
        float, typer.Option(min=0, help="How long the last rank sleeps when late.")
    ] = 150,
    late_share: Annotated[
        float, typer.Option(min=0, max=1, help="In which share of its steps.")
    ] = 1 / 3,
    seed: Annotated[int, typer.Option(min=0, help="Of data, model and lateness.")] = 0,
    task: Annotated[Task, typer.Option(help="What is learnt.")] = Task.DIGITS,
    only: Annotated[Mode | None, typer.Option(help="Run this mode alone.")] = None,
) -> None:
    """Trains on four ranks, one of them often late: wait for it, then skip it."""
    if json_file and not json_file.resolve().parent.is_dir():
        raise typer.BadParameter(f"--json {json_file}: there is no such folder")
    console = Console()
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        recipe = RECIPES[task]
        recipe.save(data, seed)
        for mode in [only] if only else list(Mode):
            plan = Plan(
                mode=mode.value,
                data=str(data),
                steps=steps,
                delay_ms=delay_ms,
                late_share=late_share,
                seed=seed,
                task=task.value,
                learning_rate=recipe.learning_rate,
            )
            try:
                results[mode.value] = run_mode(console, plan)
            except RanksFailedError as error:
                typer.echo(f"{mode.value}: {error}", err=True)
                raise typer.Exit(1) from None
    console.print(
        f"4 ranks, {steps} steps; rank 3 is {delay_ms:g} ms late in "
        f"{late_share:.0%} of its steps",
        comparison(results, recipe.target_accuracy),
        sep="\n",
    )
    if json_file:
        json_file.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
