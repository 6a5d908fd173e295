# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What goes first: urgent transfers behind bulk, and training that uses the order.

Bars are fixed beforehand (--list). The cases need root, for the hosts of lab/. A case
that fails says so and the next one runs.
"""

import contextlib
import sys
from pathlib import Path

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.ordering_cases import (
    conv,
    crossover,
    ddp,
    forward,
    urgent,
    urgent_stream,
    urgent_tuning,
)
from benchmarks.straggler_cases import command

CASES = [
    *urgent.CASES,
    *urgent_stream.CASES,
    *urgent_tuning.CASES,
    *crossover.CASES,
    *ddp.CASES,
    *conv.CASES,
    *forward.CASES,
]


def main(
    cases: command.Names = None,
    json_file: common.JsonPath = None,
    full: command.Full = False,
    seed: command.Seed = 0,
    details: command.Details = None,
    show_list: command.ShowList = False,
) -> None:
    """Measures the order of transfers against its bars."""
    command.run(
        "the order of transfers",
        CASES,
        cases,
        json_file=json_file,
        is_full=full,
        seed=seed,
        details=details,
        show_list=show_list,
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
