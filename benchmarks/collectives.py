# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Collectives and messages besides allreduce: aikido and Gloo in the same processes.

Measures other collectives, messages, a training step with small buckets, the CPU use of
an idle group, and the memory of large collectives. The two backends take turns, and
results are compared. Ranks of one host share memory, or use TCP with --tcp. With --mbit
each rank is a host with a slow link, and collectives are compared with the capacity of
the link.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import bare_backend, common, programs
from benchmarks.allreduce import KIB, MIB, size_name
from benchmarks.common import SHARED_MEMORY, TCP
from benchmarks.lab import Lab, LabError, Link, Program
from benchmarks.launch import FOLDER, RanksFailedError
from benchmarks.local_ranks import run_ranks

LIMIT_S = 900
RANKS_FILE = "collectives_ranks.py"
COLLECTIVES = ("allgather", "reduce_scatter", "alltoall", "broadcast")
SIZES = (64 * KIB, MIB, 16 * MIB)
# Largest allowed share of Gloo's median, with shared memory and over TCP.
COLLECTIVE_BARS = {SHARED_MEMORY: 0.5, TCP: 0.9}
OTHER_BARS = {"ping-pong": 0.6, "send": 0.5, "training step": 0.6}
SPINNING_BAR = 0.1  # of a ping-pong, for ranks that poll without sleeping
SPIN_US = 1000
IDLE_SHARE = 0.005  # share of a core
# Largest allowed memory of a collective beside the user's tensors: this multiple of its
# size, and this many bytes more.
MEMORY_TIMES, MEMORY_BESIDE = 2, 16 * MIB
LARGEST = 64 * MIB
# On slow links: largest allowed ratio to the capacity of a link.
LINK_SIZE, LINK_BAR = 4 * MIB, 1.04


def cases_of(names: list[str], *, on_links: bool = False) -> list[dict]:
    """The cases to measure, in this order; `names` selects some."""
    with_allreduce = ["allreduce", *COLLECTIVES]
    if on_links:
        cases = [{"name": name, "num_bytes": LINK_SIZE} for name in with_allreduce]
        return _chosen(cases, names)
    cases = [{"name": n, "num_bytes": size} for n in COLLECTIVES for size in SIZES]
    cases += [{"name": "ping-pong", "num_bytes": 8}]
    cases += [{"name": "send", "num_bytes": 64 * MIB}]
    cases += [{"name": "training step"}, {"name": "idle"}]
    memory = {"name": "memory", "num_bytes": LARGEST, "collectives": with_allreduce}
    return _chosen([*cases, memory], names)


def _chosen(cases: list[dict], names: list[str]) -> list[dict]:
    unknown = set(names) - {case["name"] for case in cases}
    if unknown:
        raise typer.BadParameter(f"there is no case {', '.join(sorted(unknown))}")
    return [case for case in cases if not names or case["name"] in names]


def judged_on_links(
    case: dict, samples: dict[str, common.Samples], *, ranks: int, mbit: float
) -> list[common.Result]:
    """Results beside the bound of the link, and beside Gloo."""
    name, num_bytes = case["name"], case["num_bytes"]
    bound = common.bound_s(name, num_bytes, ranks, mbit)
    return [
        common.Result.judge(
            f"{name} {size_name(num_bytes)} at {mbit:g} Mbit/s, beside {what}",
            unit="ms",
            value=1e3 * samples["aikido"].median,
            reference=1e3 * reference,
            bar=bar,
        )
        for what, reference, bar in (
            ("what links carry", bound, LINK_BAR),
            ("Gloo", samples["gloo"].median, None),
        )
    ]


def run(
    plan: dict, ranks: int, mbit: float | None, on_event: Callable[[dict], None]
) -> None:
    """Runs the ranks. Raises RanksFailedError or LabError."""
    if mbit is None:
        run_ranks(
            RANKS_FILE,
            json.dumps(plan),
            num_ranks=ranks,
            limit_s=LIMIT_S,
            on_event=on_event,
        )
        return
    with Lab([Link(up_mbit=mbit, down_mbit=mbit)] * ranks) as lab:
        lab.run(
            Program(FOLDER / RANKS_FILE, (json.dumps(plan),)),
            host_of=list(range(ranks)),
            deadline_s=LIMIT_S,
            on_event=lambda rank, event: on_event(event),
        )


def judged(
    case: dict, samples: dict[str, common.Samples], *, transport: str, spins: bool
) -> list[common.Result]:
    """Result beside Gloo, and beside the least exchange if that was measured.

    A row has no bar if the least exchange misses the bar, too.
    """
    name = case["name"]
    if name == "idle":
        result = common.Result.judge(
            f"idle, {transport}",
            unit="% of a core",
            value=100 * samples["share"].median,
            reference=100 * IDLE_SHARE,
            bar=1.0,
        )
        return [result]
    if name == "memory":
        size = size_name(case["num_bytes"])
        most = MEMORY_TIMES * case["num_bytes"] + MEMORY_BESIDE
        return [
            common.Result.judge(
                f"memory of {collective} {size}, {transport}",
                unit="MiB",
                value=s.median / MIB,
                reference=most / MIB,
                bar=1.0,
            )
            for collective, s in samples.items()
        ]
    bar: float | None
    if name in COLLECTIVES:
        bar = COLLECTIVE_BARS[transport]
    else:
        bar = SPINNING_BAR if spins and name == "ping-pong" else OTHER_BARS[name]
        bar = bar if transport == SHARED_MEMORY else None
    size = f" {size_name(case['num_bytes'])}" if "num_bytes" in case else ""
    title = f"{name}{size}, {transport}{', spinning' if spins else ''}"
    ms = {n: 1e3 * s.median for n, s in samples.items()}
    results = []
    if "least" in ms:
        bar = common.within_reach(
            bar, value=ms["aikido"], least=ms["least"], reference=ms["gloo"]
        )
        results = [
            common.Result.judge(
                f"{title}, beside the least",
                unit="ms",
                value=ms["aikido"],
                reference=ms["least"],
                bar=None,
            )
        ]
    beside_gloo = common.Result.judge(
        title, unit="ms", value=ms["aikido"], reference=ms["gloo"], bar=bar
    )
    return [beside_gloo, *results]


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of cases; default: all.")
    ] = None,
    json_file: common.JsonPath = None,
    ranks: Annotated[int, typer.Option(min=2, help="Ranks on this machine.")] = 4,
    iterations: Annotated[
        int, typer.Option(min=1, help="Measurements in a row with each backend.")
    ] = 6,
    alternations: Annotated[
        int, typer.Option(min=1, help="Number of turns of each backend.")
    ] = 4,
    tcp: Annotated[
        bool, typer.Option("--tcp", help="Share no memory between ranks of aikido.")
    ] = False,
    mbit: Annotated[
        float | None,
        typer.Option(help="Use hosts with links of this rate, in Mbit/s; needs root."),
    ] = None,
    spin: Annotated[
        bool, typer.Option("--spin", help="Waiting ranks poll without sleeping.")
    ] = False,
) -> None:
    """Compares collectives and messages of aikido and Gloo on this machine."""
    if tcp:
        os.environ["AIKIDO_TRANSPORT_SHARED_MEMORY_BYTES"] = "0"
    if spin:
        os.environ["AIKIDO_TRANSPORT_SPIN_US"] = str(SPIN_US)
    cases = cases_of(names or [], on_links=mbit is not None)
    transport = TCP if tcp else SHARED_MEMORY
    least_over = transport if mbit is None else None
    bare: str | None = None
    if least_over is not None:
        try:
            programs.build(common.LEAST_LIBRARY)
            if any(case["name"] == "ping-pong" for case in cases) and not tcp:
                bare = str(bare_backend.build())
        except programs.BuildError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None
    plan = {
        "cases": cases,
        "iterations": iterations,
        "alternations": alternations,
        "least_over": least_over,
        "bare": bare,
    }
    results: list[common.Result] = []
    num_late = 0
    console = common.console_for_tables()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("measuring", total=len(cases))

        def on_event(event: dict) -> None:
            nonlocal num_late
            progress.advance(bar)
            num_late += event["num_late"]
            samples = {n: common.Samples(tuple(v)) for n, v in event["seconds"].items()}
            case = cases[event["number"]]
            results.extend(
                judged(case, samples, transport=transport, spins=spin)
                if mbit is None
                else judged_on_links(case, samples, ranks=ranks, mbit=mbit)
            )

        try:
            run(plan, ranks, mbit, on_event)
        except (RanksFailedError, LabError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from None
    common.report(results, json_file)
    if num_late:
        console.print(f"{num_late} operations had a late start: the machine was busy.")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
