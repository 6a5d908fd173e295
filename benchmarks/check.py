# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Reads result files of the benchmarks and says which results do not hold.

    python benchmarks/check.py FILE...

Exit status: 0 when every result holds, 1 when some do not, 2 when a file is not what it
should be.
"""

import json
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.common import Result, results_table

_TYPES = {"str": str, "float": (int, float), "bool": bool}
_WANTED = {
    field.name: _TYPES[getattr(field.type, "__name__", "")] for field in fields(Result)
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
    for name, kind in _WANTED.items():
        value = row[name]
        if not isinstance(value, kind) or (isinstance(value, bool) != (kind is bool)):
            raise MalformedError(f"{where}: {name} is {value!r}, of the wrong type.")
        if isinstance(value, float) and math.isnan(value) and row["holds"]:
            raise MalformedError(f"{where}: {name} is no number, so it cannot hold.")
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
    failed = [result for result in results if not result.holds]
    if failed:
        title = f"{len(failed)} of {len(results)} results do not hold"
        Console().print(results_table(failed, title=title))
        raise typer.Exit(1)
    typer.echo(f"All {len(results)} results hold.")


if __name__ == "__main__":
    typer.run(main)
