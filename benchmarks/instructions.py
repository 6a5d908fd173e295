# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Number of instructions of a rank for an allreduce of 4 KiB and a message of 8 bytes.

Callgrind counts them, in programs that have all members in one thread. The programs for
the allreduce send over links in memory (cpp/count_allreduces.cpp), so the count is the
cost of the engine and the collectives. The programs for the message use shared memory
as processes do (cpp/count_messages.cpp), so the count covers both ends from call to
completion.

No program uses torch or waits, so each run has the same figures. The message's figures
vary by one percent, because its loops read the clock. The reference is the figure in
results/instructions.json for the same compiler. The programs also count their heap
allocations, which must be zero after the first calls.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common, programs

# Calls. Also twice as many are counted, so that the cost of the process cancels.
NUM = 100
BAR = 1.1  # largest allowed ratio to the stored figure
KEPT = Path(__file__).parent / "results" / "instructions.json"


class NotCountedError(Exception):
    """No tool for counting is available, or counting failed; the text gives the
    reason.
    """


class Case(NamedTuple):
    """A counted operation, and its program; the count is divided by `ranks`."""

    program: str
    title: str
    article: str
    ranks: int


ALLREDUCE = Case("count_allreduces", "allreduce of 4 KiB, 4 ranks", "an", 4)
MESSAGE = Case("count_messages", "message of 8 bytes, both ends", "a", 1)
CASES = (ALLREDUCE, MESSAGE)


class Counted(NamedTuple):
    """Compiler of the program, and counts of a rank for one call."""

    build: str
    instructions: float
    allocations: float


def count_of(text: str) -> int:
    """Total instructions in the output of callgrind."""
    found = re.search(r"Collected : (\d+)", text)
    if found is None:
        raise NotCountedError(f"callgrind did not say how many instructions:\n{text}")
    return int(found[1])


def allocations_of(text: str) -> int:
    """Total allocations in the output of the program."""
    found = re.search(r"^(\d+) allocations$", text, re.MULTILINE)
    if found is None:
        raise NotCountedError(f"it did not say how many allocations:\n{text}")
    return int(found[1])


def count(program: Path, *how: str, ranks: int = ALLREDUCE.ranks) -> Counted:
    """Counts of each of `ranks` for a call. `how`: further arguments of the program."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise NotCountedError("There is no valgrind here.")
    command = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    instructions, allocations = [], []
    for num in (NUM, 2 * NUM):
        done = subprocess.run(
            [*command, str(program), str(num), *how], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise NotCountedError(f"{program.name} failed:\n{done.stderr}")
        instructions.append(count_of(done.stderr))
        allocations.append(allocations_of(done.stdout))

    def of_each(counts: list[int]) -> float:
        return (counts[1] - counts[0]) / NUM / ranks

    build = done.stdout.splitlines()[0]
    return Counted(build, of_each(instructions), of_each(allocations))


def kept(case: str, path: Path = KEPT) -> float | None:
    """The figure of `case` in the file; None if it has none."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return next((row["value"] for row in rows if row["case"] == case), None)


def judged(
    counted: Counted, path: Path = KEPT, of: Case = ALLREDUCE
) -> list[common.Result]:
    """Instructions compared with those stored for the same build; allocations with
    zero.

    Instructions of another build are not judged.
    """
    case = f"{of.title}, {counted.build}"
    value = counted.instructions
    reference = kept(case, path)
    return [
        common.Result.judge(
            case,
            unit="instructions",
            value=value,
            reference=value if reference is None else reference,
            bar=None if reference is None else BAR,
        ),
        common.Result.judge(
            f"allocations of {of.article} {case}",
            unit="allocations",
            value=counted.allocations,
            reference=0,
            bar=1,
        ),
    ]


def main(json_file: common.JsonPath = None) -> None:
    """Counts instructions of calls, and compares them with the stored figures."""
    results: list[common.Result] = []
    try:
        for case in CASES:
            counted = count(programs.build(case.program), ranks=case.ranks)
            results += judged(counted, of=case)
    except (NotCountedError, programs.BuildError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    common.report(results, json_file)


if __name__ == "__main__":
    typer.run(main)
