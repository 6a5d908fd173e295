# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Progress of training loops: contributions per second in the sums, and accuracy.

These figures matter to users, in loops that were not tuned. SkipStraggler() with all
defaults is compared with strict aikido, Gloo and other policies, which take turns in
one run. All bars are fixed in advance (--list). Cases between hosts need root, for the
hosts of lab/. A case that fails reports it, and the next one runs.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.progress_cases import healthy, late, links, pauses, short
from benchmarks.straggler_cases import command

CASES = [*healthy.CASES, *pauses.CASES, *links.CASES, *late.CASES]


def main(
    cases: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="NAME", help="Run only this case; repeatable."),
    ] = None,
    json_file: common.JsonPath = None,
    is_short: Annotated[
        bool, typer.Option("--short", help="Only some rows on one host; half a minute.")
    ] = False,
    full: command.Full = False,
    seed: command.Seed = 0,
    details: command.Details = None,
    show_list: command.ShowList = False,
) -> None:
    """Measures the progress of training loops with late ranks, and without."""
    command.run(
        "progress of training loops",
        short.CASES if is_short else CASES,
        cases,
        json_file=json_file,
        is_full=full,
        seed=seed,
        details=details,
        show_list=show_list,
    )


if __name__ == "__main__":
    command.start(main)
