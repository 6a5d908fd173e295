# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Accuracy of verdicts of aikido_torch.trace about late ranks and the causes.

    python benchmarks/verdicts.py                  # both tables, some minutes
    python benchmarks/verdicts.py --only pure
    python benchmarks/verdicts.py --json FILE      # for benchmarks/check.py

The pure table has simulated windows: 2 to 64 ranks, 1 to half of them late, steadily,
growing, once or in turn, in noise of 5 to 50 %, in windows of 1 to 50 steps. The live
table trains on 2 and 4 ranks of this machine, which are late on purpose.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.verdict_cases import live, pure

PARTS = ("pure", "live")


def main(
    only: Annotated[str | None, typer.Option(help=" or ".join(PARTS))] = None,
    windows: Annotated[
        int, typer.Option(min=1, help="Windows of each setting of the pure table.")
    ] = 3,
    alarms: Annotated[
        int, typer.Option(min=30, help="Windows without a late rank, for each noise.")
    ] = 6000,
    seed: int = 0,
    json: common.JsonPath = None,
) -> None:
    """Makes late ranks, and counts the correct verdicts."""
    if only is not None and only not in PARTS:
        raise typer.BadParameter(f"--only is {only!r}; it takes {' or '.join(PARTS)}")
    results: list[common.Result] = []
    if only in (None, "pure"):
        counts = pure.measure(windows, seed)
        pure.show(counts)
        results += pure.judge(counts)
        results += pure.judge_alarms(pure.measure_alarms(alarms, seed))
    if only in (None, "live"):
        seen = live.measure()
        live.show(seen)
        results += live.judge(seen)
    common.report(results, json)


if __name__ == "__main__":
    typer.run(main)
