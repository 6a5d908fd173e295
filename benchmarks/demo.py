# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Demo: one model trained with an often late rank: wait, skip, or use a backup.

Four ranks train a small network on scikit-learn's handwritten digits, or a model that
predicts the next character of a text (`--task text`). If network namespaces are
available, each rank is a host of its own with a link of its own, and the last rank's
uplink is slow in a third of the steps. Otherwise the last rank sleeps before the
backward pass in a third of its steps. `gloo` and `wait_all` wait for it, as every
strict allreduce does. `skip` goes on without it if waiting costs more than its
contribution is worth. With `backup` a fifth rank then replaces it. With `reassign` the
other ranks take over micro-batches of the sleeping rank, whose sleep is divided among
its micro-batches.
"""

import contextlib
import enum
import functools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.demo_plan import Plan, slow_steps, steps_per_second, uplink_mbit
from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.local_ranks import run_ranks
from benchmarks.tasks import RECIPES, Task

LIMIT_S = 600
PROGRAM = "demo_train.py"

OnEvent = Callable[[dict], None]
# Runs all ranks of a plan to their end; raises RanksFailedError.
Run = Callable[[Plan, OnEvent], None]


class Mode(enum.StrEnum):
    """Treatment of a late rank."""

    GLOO = "gloo"
    WAIT_ALL = "wait_all"
    SKIP = "skip"
    BACKUP = "backup"
    REASSIGN = "reassign"  # of a rank that sleeps; no link gets faster by it


class Straggler(enum.StrEnum):
    """Cause of the last rank's lateness."""

    UPLINK = "uplink"
    SLEEP = "sleep"


class StepBar:
    """Progress of one run: a bar on a terminal, otherwise a line per quarter."""

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

    def say(self, what: str) -> None:
        """Shows an event of the ranks."""
        if self._bar:
            self._bar.update(self._task, description=f"{self._label}: {what}")
        else:
            self._console.print(f"{self._label}: {what}")

    def show(self, step: int) -> None:
        if self._bar:
            self._bar.update(self._task, completed=step)
        elif 4 * step // self._steps > self._quarter:
            self._quarter = 4 * step // self._steps
            self._console.print(f"{self._label}: step {step} of {self._steps}")


def run_here(plan: Plan, on_event: OnEvent) -> None:
    run_ranks(
        PROGRAM,
        plan.to_json(),
        num_ranks=plan.size,
        limit_s=LIMIT_S,
        on_event=on_event,
    )


def run_in_lab(lab: Lab, plan: Plan, on_event: OnEvent) -> None:
    """Runs with one host for each rank; the last one's uplink changes with the step."""

    def on_rank_event(rank: int, event: dict) -> None:
        on_event(event)
        rate = uplink_mbit(plan, event.get("step", plan.steps))
        if rate != lab.links[plan.late_rank].up_mbit:
            lab.change(plan.late_rank, up_mbit=rate)
            on_event({"uplink_mbit": rate})

    program = Path(__file__).resolve().with_name(PROGRAM)
    try:
        lab.run(
            Program(program, (plan.to_json(),)),
            num_ranks=plan.size,
            deadline_s=LIMIT_S,
            on_event=on_rank_event,
        )
    finally:
        lab.change(plan.late_rank, up_mbit=plan.mbit)


def run_mode(console: Console, plan: Plan, run: Run) -> dict:
    """One run in one mode; returns its row of the result."""
    found: dict = {}
    with StepBar(console, f"{plan.mode:>8}", plan.steps) as bar:

        def on_event(event: dict) -> None:
            if "step" in event:
                bar.show(event["step"])
            if "uplink_mbit" in event:
                bar.say(f"uplink at {event['uplink_mbit']:g} Mbit/s")
            found.update(event.get("result", {}))

        run(plan, on_event)
        bar.show(plan.steps)
    curve = found.pop("curve")
    target = RECIPES[Task(plan.task)].target_accuracy
    reached = [c["seconds"] for c in curve if c["accuracy"] >= target]
    row = {
        "seconds": found["seconds"],
        "steps_per_second": found["steps_per_second"],
        "share": sum(found["shares"]) / plan.num_ranks,
        "samples_per_second": (
            found["steps_per_second"] * plan.batch_size * sum(found["shares"])
        ),
        "seconds_to_target": reached[0] if reached else None,
        "accuracy": curve[-1]["accuracy"],
        "skipped": found["skipped"],
        "stood_in_for": found["stood_in_for"],
        "hashes_equal": found["hashes_equal"],
        "taken": found["taken"],
    }
    if plan.slow_mbit is not None:
        row["slow_steps_per_second"] = steps_per_second(curve, slow_steps(plan))
    return row


SLOW_ROW = "steps per second while the uplink is slow"


def comparison(results: dict[str, dict], target: float) -> Table:
    def seconds(value: float | None) -> str:
        return "not reached" if value is None else f"{value:.2f}"

    rows = (
        ("seconds", lambda r: seconds(r["seconds"])),
        ("steps per second", lambda r: f"{r['steps_per_second']:.1f}"),
        ("share of contributions", lambda r: f"{r['share']:.1%}"),
        (
            "progress, in samples per second",
            lambda r: f"{r['samples_per_second']:,.0f}",
        ),
        (SLOW_ROW, lambda r: seconds(r["slow_steps_per_second"])),
        (
            f"seconds to {target:.0%} test accuracy",
            lambda r: seconds(r["seconds_to_target"]),
        ),
        ("final test accuracy", lambda r: f"{r['accuracy']:.1%}"),
        ("contributions skipped, by rank", lambda r: " ".join(map(str, r["skipped"]))),
        (
            "steps with a stand-in, by rank",
            lambda r: " ".join(map(str, r["stood_in_for"])),
        ),
        (
            "micro-batches taken over, by rank",
            lambda r: " ".join(map(str, r["taken"])),
        ),
        (
            "parameters equal on all ranks",
            lambda r: "yes" if r["hashes_equal"] else "NO",
        ),
    )
    table = Table()
    table.add_column("")
    for mode in results:
        table.add_column(mode, justify="right")
    has_slow = all("slow_steps_per_second" in result for result in results.values())
    for name, cell in rows:
        if name == SLOW_ROW and not has_slow:
            continue
        table.add_row(name, *(cell(result) for result in results.values()))
    return table


def plan_for(mode: Mode, straggler: Straggler, **values: Any) -> Plan:
    """A plan without the options of the other straggler."""
    others = {
        Straggler.UPLINK: ("delay_ms", "late_share"),
        Straggler.SLEEP: ("mbit", "slow_mbit"),
    }
    for name in others[straggler]:
        values.pop(name)
    num_backups = 1 if mode is Mode.BACKUP else 0
    return Plan(mode=mode.value, num_backups=num_backups, **values)


def describe(plan: Plan) -> str:
    """One line about the conditions of all modes."""
    if plan.slow_mbit is None:
        late = (
            f"rank {plan.late_rank} is {plan.delay_ms:g} ms late in "
            f"{plan.late_share:.0%} of its steps"
        )
    else:
        slow = slow_steps(plan)
        late = (
            f"links of {plan.mbit:g} Mbit/s; the uplink of rank {plan.late_rank} has "
            f"{plan.slow_mbit:g} Mbit/s from step {slow.start} to {slow.stop}"
        )
    return f"{plan.num_ranks} ranks, {plan.steps} steps; {late}"


def choose(asked: Straggler | None, console: Console) -> Straggler:
    """The requested straggler; by default a slow uplink if that is possible."""
    if asked is Straggler.SLEEP:
        return asked
    reason = Lab.unavailable()
    if reason is None:
        return Straggler.UPLINK
    if asked is not None:
        raise typer.BadParameter(f"--straggler {asked}: {reason}")
    reason = reason.rstrip(".")
    console.print(f"{reason}. So the late rank sleeps instead of having a slow uplink.")
    return Straggler.SLEEP


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=5, help="Optimizer steps per mode.", show_default="200; 300"),
    ] = None,
    straggler: Annotated[
        Straggler | None,
        typer.Option(
            help="What makes the last rank late.", show_default="uplink if possible"
        ),
    ] = None,
    mbit: Annotated[
        float, typer.Option(min=1, help="Rate of each link, each way.")
    ] = 200,
    slow_mbit: Annotated[
        float, typer.Option(min=0.1, help="Rate of the last rank's uplink while slow.")
    ] = 20,
    delay_ms: Annotated[
        float,
        typer.Option(min=0, help="Milliseconds that the last rank sleeps when late."),
    ] = 150,
    late_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Share of its steps in which it is late."),
    ] = 1 / 3,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of data, model, lateness.")
    ] = 0,
    task: Annotated[Task, typer.Option(help="Data to learn.")] = Task.DIGITS,
    only: Annotated[Mode | None, typer.Option(help="Run this mode alone.")] = None,
) -> None:
    """Trains on four ranks, one often late: wait, skip, have a backup, or move work."""
    if json_file and not json_file.resolve().parent.is_dir():
        raise typer.BadParameter(f"--json {json_file}: there is no such folder")
    console = Console()
    straggler = choose(straggler, console)
    is_uplink = straggler is Straggler.UPLINK
    recipe = RECIPES[task]
    results: dict[str, dict] = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        data = Path(folder) / "data.npz"
        recipe.save(data, seed)
        make_plan = functools.partial(
            plan_for,
            straggler=straggler,
            data=str(data),
            steps=steps or (200 if is_uplink else 300),
            seed=seed,
            task=task.value,
            learning_rate=recipe.learning_rate,
            delay_ms=delay_ms,
            late_share=late_share,
            mbit=mbit,
            slow_mbit=slow_mbit,
        )
        run: Run = run_here
        if is_uplink:
            size = max(make_plan(mode).size for mode in Mode)
            links = [Link(up_mbit=mbit, down_mbit=mbit)] * size
            run = functools.partial(run_in_lab, stack.enter_context(Lab(links)))
        other = Mode.REASSIGN if is_uplink else Mode.GLOO
        usual = [mode for mode in Mode if mode is not other]
        for mode in [only] if only else usual:
            plan = make_plan(mode)
            try:
                results[mode.value] = run_mode(console, plan, run)
            except RanksFailedError as error:
                typer.echo(f"{mode.value}: {error}", err=True)
                raise typer.Exit(1) from None
    console.print(describe(plan), comparison(results, recipe.target_accuracy), sep="\n")
    if json_file:
        json_file.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
