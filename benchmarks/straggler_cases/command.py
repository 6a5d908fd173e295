# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A benchmark command made of cases: it lists them, or runs and judges them."""

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import common
from benchmarks.lab import LabError
from benchmarks.straggler_cases.case import (
    Case,
    CaseError,
    Context,
    Row,
    list_table,
    notes,
    result_table,
)

# Options for the signature of a typer command.
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[CASE]...", help="Cases; default: all.")
]
Full = Annotated[
    bool, typer.Option("--full", help="Full length as for the bars, not minutes.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Details = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Append observations of ranks, a JSON line per run."
    ),
]
ShowList = Annotated[
    bool, typer.Option("--list", help="Show the cases and their bars.")
]


def chosen(cases: Sequence[Case], names: list[str]) -> list[Case]:
    """The named cases, or all, in the order of the list."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
    return [case for case in cases if not names or case.name in names]


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
    """Measures cases; `on_rows` gets all rows so far after each case."""
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


def command(title: str, cases: Sequence[Case], about: str) -> Callable[..., None]:
    """A typer command that runs some of `cases`; `about` is its help text."""

    def run_cases(
        names: Names = None,
        json_file: common.JsonPath = None,
        full: Full = False,
        seed: Seed = 0,
        details: Details = None,
        show_list: ShowList = False,
    ) -> None:
        run(
            title,
            cases,
            names,
            json_file=json_file,
            is_full=full,
            seed=seed,
            details=details,
            show_list=show_list,
        )

    run_cases.__doc__ = about
    return run_cases


def start(main: Callable[..., None]) -> NoReturn:
    """Runs a typer command as this process; Ctrl-C ends it with status 130."""
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)


def run(
    title: str,
    cases: Sequence[Case],
    names: list[str] | None,
    *,
    json_file: Path | None,
    is_full: bool,
    seed: int,
    details: Path | None,
    show_list: bool,
) -> list[Row]:
    """The whole command; returns the rows, none for a list."""
    console = common.console_for_tables()
    asked = chosen(cases, names or [])
    if show_list:
        console.print(list_table(asked, title=f"cases of {title}"))
        return []
    facts = common.machine_facts()
    mode = {"mode": "full" if is_full else "quick", "seed": seed, "machine": facts}

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
        is_full=is_full,
        seed=seed,
        on_rows=write_rows,
        on_record=write_record,
    )
    console.print(result_table(rows, title=title))
    for note in notes(rows):
        console.print(note, markup=False, highlight=False)
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()))
    return rows
