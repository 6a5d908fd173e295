# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which machines to rent: the planners beside rivals and bounds, in the simulator.

All bars are fixed in advance (--list). Generated markets need no data. The recorded
cases read a folder with `auction/*.csv.gz` and `capacity/*.json.gz` (--traces).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.market_cases import auction, capacity, limits
from benchmarks.straggler_cases import command


def main(
    names: command.Names = None,
    json_file: common.JsonPath = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Folder of recorded markets.", exists=True, file_okay=False),
    ] = None,
    full: command.Full = False,
    seed: command.Seed = 0,
    details: command.Details = None,
    show_list: command.ShowList = False,
) -> None:
    """Compares the planners with rivals on generated and on recorded markets."""
    command.run(
        "markets of machines",
        [*auction.cases(traces), *capacity.cases(traces), *limits.CASES],
        names,
        json_file=json_file,
        is_full=full,
        seed=seed,
        details=details,
        show_list=show_list,
    )


if __name__ == "__main__":
    command.start(main)
