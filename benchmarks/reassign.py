# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Steps whose work moves from slow ranks to fast ranks, beside the ideal.

The ranks are processes of this machine. A micro-batch takes a fixed time by a timer,
longer on a slow rank, with a small real gradient within that time. The ideal is the
whole work divided by the sum of all speeds. These take turns: DistributedDataParallel
with accumulation, a StepLoader that only predicts costs, one with bounded staleness,
one that moves micro-batches, and one with both. All bars are fixed in advance (--list).
A case that fails reports it, and the next one runs.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.reassign_cases import short
from benchmarks.reassign_cases.cases import cases
from benchmarks.reassign_cases.figures import arms_table
from benchmarks.straggler_cases import command


def main(
    names: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="NAME", help="Run only this case; repeatable."),
    ] = None,
    json_file: common.JsonPath = None,
    ranks: Annotated[int, typer.Option(min=2, help="Number of ranks.")] = 4,
    is_short: Annotated[
        bool, typer.Option("--short", help="One small case; some seconds.")
    ] = False,
    full: command.Full = False,
    details: command.Details = None,
    show_list: command.ShowList = False,
) -> None:
    """Measures steps with slow ranks against the ideal."""
    rows = command.run(
        f"work that moves between {ranks} ranks",
        short.CASES if is_short else cases(ranks),
        names,
        json_file=json_file,
        is_full=full,
        seed=0,
        details=details,
        show_list=show_list,
    )
    if rows:
        common.console_for_tables().print(arms_table(rows))


if __name__ == "__main__":
    command.start(main)
