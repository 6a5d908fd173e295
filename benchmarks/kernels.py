# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sums of 2, 4 and 8 buffers of float32 by one thread, compared with reading them.

The sums are called as the engine calls them, for every instruction set of this CPU. The
reference is the fastest of several loops of the same instruction set that read the same
memory and compute nothing. For the set that the engine chooses, the reference is the
fastest loop of all sets.

Counted bytes are those that are read, k times the size of a buffer. The result, which
replaces the first buffer, is not counted. So on some machines no sum can be as fast as
reading: some caches are slower while they are written, and some CPUs lower their clock
while they add wide vectors.

These limits are measured with the sums. One loop reads all buffers and writes the first
one without adding. Other loops do the additions of the sum on data in the L1 cache,
without its stores or with as many stores that do not depend on a sum. Further loops
have all of these operations on the buffers themselves. A sum has no bar if the lowest
limit misses the bar, too. A second row then compares the sum with that limit.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common, programs

PROGRAM = "bench_kernels"
BAR = 0.9  # largest allowed share of the bytes that can be read in the same time
# Loops that do a part of the work of a sum, with their names in cases.
LIMITS = {
    "write": "reading and writing",
    "add": "reading and adding",
    "add and write": "reading, adding, writing",
    "add there": "reading, adding, writing there",
}
# KiB of all buffers together. The first three fit into the caches of most CPUs (L1, L2,
# L3), the last does not.
FOOTPRINTS = {"32 KiB": 32, "512 KiB": 512, "8 MiB": 8192, "128 MiB": 131072}
# In the L1 and L2 cache the sums are within 2 % of the limits, so more turns are needed
# to distinguish them. There a turn takes 70 ms, outside of the caches seconds.
SMALL_KIB = 512
TURNS_IF_SMALL = 4


def rate(row: dict) -> float:
    """GB read per second, in the faster quarter of the turns.

    Not the median: memory shared with other machines has two speeds, and chance decides
    which one has the majority of the turns.
    """
    seconds = common.Samples(tuple(row["seconds"])).quantile(0.25)
    return row["bytes_read"] / seconds / 1e9


def fastest(rows: list[dict], kind: str, set_name: str | None) -> float:
    """Rate of the fastest loop of `kind`, in one instruction set or in all (None)."""
    return max(
        rate(row)
        for row in rows
        if row["kind"] == kind and set_name in (None, row["set"])
    )


def judge(
    case: str, value: float, reference: float, bar: float | None
) -> common.Result:
    return common.Result.judge(
        case, unit="GB/s", value=value, reference=reference, bar=bar, better="higher"
    )


def judged(rows: list[dict]) -> list[common.Result]:
    """Results of the sums in `rows`, which have one footprint and one number of
    sources.
    """
    sums = [row for row in rows if row["kind"] == "sum"]
    name = next(n for n, kib in FOOTPRINTS.items() if kib == sums[0]["kib"])
    results = []
    for row in sums:
        is_picked = row is sums[-1]
        set_name = None if is_picked else row["set"]
        value, read = rate(row), fastest(rows, "read", set_name)
        limit, what = min(
            (fastest(rows, k, set_name), what) for k, what in LIMITS.items()
        )
        case = f"{name}, {row['sources']} sources, {row['set']}"
        case += " (picked)" if is_picked else ""
        bar = common.within_reach(
            BAR, value=value, least=limit, reference=read, better="higher"
        )
        results.append(judge(case, value, read, bar))
        if bar is None:
            results.append(judge(f"{case}, beside {what}", value, limit, BAR))
    return results


def measure(kib: int, turns: int, prefetch: bool | None) -> list[common.Result]:
    turns *= TURNS_IF_SMALL if kib <= SMALL_KIB else 1
    command = [str(programs.path_of(PROGRAM)), str(turns), str(kib)]
    if prefetch is not None:
        command.insert(1, "--prefetch" if prefetch else "--no-prefetch")
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in text.splitlines()]
    return [
        result
        for sources in sorted({row["sources"] for row in rows})
        for result in judged([row for row in rows if row["sources"] == sources])
    ]


def footprints_of(names: list[str]) -> list[int]:
    unknown = set(names) - set(FOOTPRINTS)
    if unknown:
        raise typer.BadParameter(f"there is no case {', '.join(sorted(unknown))}")
    return [kib for name, kib in FOOTPRINTS.items() if not names or name in names]


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of cases; default: all.")
    ] = None,
    json_file: common.JsonPath = None,
    turns: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of turns of all functions;"
            f" {TURNS_IF_SMALL} times as many up to {SMALL_KIB} KiB.",
        ),
    ] = 25,
    prefetch: Annotated[
        bool | None,
        typer.Option(
            help="Sums prefetch their inputs; default: as suits this CPU.",
            show_default=False,
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Only print the names of the cases.")
    ] = False,
) -> None:
    """Compares sums of several buffers with reading them, in and out of the caches."""
    footprints = footprints_of(names or [])
    if show_list:
        typer.echo("\n".join(FOOTPRINTS))
        return
    try:
        programs.build(PROGRAM)
    except programs.BuildError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    results = [result for kib in footprints for result in measure(kib, turns, prefetch)]
    common.report(results, json_file)
    common.console_for_tables().print(
        "Counted are the bytes that are read, not those of the result. The engine uses"
        " the picked set."
    )


if __name__ == "__main__":
    typer.run(main)
