# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Whether tracing finds who makes the others wait, and what it costs.

    python benchmarks/tracing.py                    # all of it, some minutes
    python benchmarks/tracing.py --only overhead

Something is wrong with one rank of four for a while: it computes for longer, its data
come late, the way out of or into its host is slow, or its process is stopped. The hosts
are network namespaces (benchmarks/lab), so that needs root.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.lab import Lab
from benchmarks.tracing_cases import confusion, overhead

PARTS = ("confusion", "healthy", "simulated", "overhead")


def main(
    only: Annotated[str | None, typer.Option(help=", ".join(PARTS))] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Per cause and rank.")] = 2,
    blocks: Annotated[int, typer.Option(min=1, help="Of each arm.")] = 20,
    steps: Annotated[int, typer.Option(min=1, help="Of a block.")] = 60,
    healthy_s: Annotated[float, typer.Option(min=5, help="Without a fault.")] = 120,
    simulated: Annotated[int, typer.Option(min=1000, help="Steps.")] = 10_000,
    seed: int = 0,
    json: common.JsonPath = None,
) -> None:
    """Injects causes, counts verdicts, and times steps."""
    if only is not None and only not in PARTS:
        raise typer.BadParameter(f"--only is {only!r}; it takes {', '.join(PARTS)}")
    results: list[common.Result] = []
    if only in (None, "simulated"):
        results.append(confusion.simulated_alarms(simulated, seed))
    if only in (None, "confusion", "healthy") and (reason := Lab.unavailable()):
        raise SystemExit(reason)
    if only in (None, "confusion"):
        windows = confusion.inject(repeats, seed)
        confusion.show(windows)
        results += confusion.judge(windows, "4 hosts")
    if only in (None, "healthy"):
        windows = confusion.run_in_lab([], healthy_s)
        confusion.show(windows)
        results.append(confusion.judge_healthy(windows, "4 hosts"))
    if only in (None, "overhead"):
        results += overhead.measure(blocks, steps)
    common.report(results, json)


if __name__ == "__main__":
    typer.run(main)
