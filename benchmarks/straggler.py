# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Skip-straggler allreduce on hosts with slow links, late ranks and dead ones.

Every case measures ours, the comparison values and Gloo in turns by the same processes,
and judges by bars fixed beforehand (--list). It needs root, for the hosts of lab/; only
healthy-small does without. A case that fails says so and the next one runs.
"""

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.lab import LabError
from benchmarks.straggler_cases import faults, late, links, training
from benchmarks.straggler_cases.case import (
    Case,
    CaseError,
    Context,
    Row,
    list_table,
    notes,
    result_table,
)

CASES = [*links.CASES, *late.CASES, *faults.CASES, *training.CASES]


def chosen(names: list[str]) -> list[Case]:
    """Those cases, or all, in the order of the list."""
    known = [case.name for case in CASES]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return [case for case in CASES if not names or case.name in names]


def run_case(case: Case, context: Context) -> list[Row]:
    try:
        return case.measure(case, context)
    except CaseError as error:
        return case.failed(error)
    except LabError as error:
        return case.failed(CaseError(str(error)))


def measure(
    console: Console,
    cases: list[Case],
    *,
    is_full: bool,
    seed: int,
    on_rows: Callable[[list[Row]], None],
    on_record: Callable[[str, dict], None],
) -> list[Row]:
    """`on_rows` gets all rows so far after each case."""
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for number, case in enumerate(cases, 1):
            label = f"{case.name} ({number} of {len(cases)})"
            task = progress.add_task(label, total=1.0)
            start = time.monotonic()

            def on_progress(share: float, task=task) -> None:
                progress.update(task, completed=share)

            context = Context(
                is_full=is_full,
                seed=seed,
                on_progress=on_progress,
                on_record=functools.partial(on_record, case.name),
            )
            found = run_case(case, context)
            progress.remove_task(task)
            verdicts = ", ".join(row.verdict for row in found)
            seconds = time.monotonic() - start
            console.print(f"{label}, {seconds:.0f} s: {verdicts}", markup=False)
            rows += found
            on_rows(rows)
    return rows


def main(
    cases: Annotated[
        list[str] | None, typer.Argument(metavar="[CASE]...", help="Default: all.")
    ] = None,
    json_file: common.JsonPath = None,
    full: Annotated[
        bool, typer.Option("--full", help="As long as the bars mean it, not minutes.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is random.")] = 0,
    details: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append what each rank saw, a JSON line per block."
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Show the cases and their bars.")
    ] = False,
) -> None:
    """Measures skip-straggler allreduce against its bars, interleaved with Gloo."""
    console = common.console_for_tables()
    asked = chosen(cases or [])
    if show_list:
        console.print(list_table(asked))
        return
    facts = common.machine_facts()
    mode = {"mode": "full" if full else "quick", "seed": seed, "machine": facts}

    def write_rows(rows: list[Row]) -> None:
        if json_file:
            json_file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps([row.as_json() | mode for row in rows], indent=2)
            json_file.write_text(text + "\n")

    def write_record(case: str, record: dict) -> None:
        if details:
            with details.open("a") as file:
                file.write(json.dumps({"case": case, **record}) + "\n")

    rows = measure(
        console,
        asked,
        is_full=full,
        seed=seed,
        on_rows=write_rows,
        on_record=write_record,
    )
    console.print(result_table(rows))
    for note in notes(rows):
        console.print(note, markup=False, highlight=False)
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
