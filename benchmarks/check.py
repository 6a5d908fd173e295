# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Check of result files of the benchmarks; names results that do not hold.

    python benchmarks/check.py FILE...

Exit status: 0 if every result holds, 1 if some do not, 2 if a file is malformed.
"""

import json
import math
import sys
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import Result, results_table

_TYPES = {str: {str}, float: {int, float}, bool: {bool}, NoneType: {NoneType}}
# The types that JSON may give each field; int counts as float, and bool not as int.
_WANTED = {
    field.name: set().union(*(_TYPES[t] for t in get_args(field.type) or [field.type]))
    for field in fields(Result)
}


class MalformedError(Exception):
    """A file is not a list of results; the text says what is wrong, and where."""


def read(path: Path) -> list[Result]:
    """The results in `path`. Raises MalformedError. Further keys are allowed."""
    try:
        rows = json.loads(path.read_text())
    except OSError as error:
        raise MalformedError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # JSON or UTF-8
        raise MalformedError(f"{path} is not JSON: {error}.") from error
    if not isinstance(rows, list):
        raise MalformedError(f"{path} must hold a list of results.")
    if not rows:
        raise MalformedError(f"{path} holds no results, so it shows nothing.")
    return [
        _result(row, f"{path}, result {number}") for number, row in enumerate(rows, 1)
    ]


def _result(row: Any, where: str) -> Result:
    if not isinstance(row, dict):
        raise MalformedError(f"{where} must be an object.")
    missing = [name for name in _WANTED if name not in row]
    if missing:
        raise MalformedError(f"{where} lacks {', '.join(missing)}.")
    for name, kinds in _WANTED.items():
        value = row[name]
        if type(value) not in kinds:
            raise MalformedError(f"{where}: {name} is {value!r}, of the wrong type.")
        if isinstance(value, float) and math.isnan(value) and row["holds"]:
            raise MalformedError(f"{where}: {name} is no number, so it cannot hold.")
    if (row["bar"] is None) != (row["holds"] is None):
        raise MalformedError(f"{where}: bar and holds must both be null, or neither.")
    return Result(**{name: row[name] for name in _WANTED})


def main(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
) -> None:
    """Exit with 1 if a result in one of the files does not hold."""
    try:
        results = [result for path in files for result in read(path)]
    except MalformedError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    judged = [result for result in results if result.holds is not None]
    failed = [result for result in judged if not result.holds]
    if failed:
        title = f"{len(failed)} of {len(judged)} results do not hold"
        Console().print(results_table(failed, title=title))
        raise typer.Exit(1)
    typer.echo(f"All {len(judged)} results hold.")


if __name__ == "__main__":
    typer.run(main)
