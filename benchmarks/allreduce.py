# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Strict allreduce on this machine: aikido and Gloo in the same processes.

Both take turns, with each requested algorithm; allreduce_ranks.py describes the timing
of an operation. Sums are checked for equality on every rank.

With --mbit each rank is on a host of its own (lab/), with a link of this rate in each
direction. With --hosts there are that many hosts, each with several ranks that share
its link. With --unshaped each rank is on a host of its own, too, and links are as fast
as this machine. Ranks of one host share memory, or use TCP with --tcp. Unless links
have a rate, the least exchange of an allreduce takes turns as well (least_exchange.py).

With --device cuda tensors are on GPUs. If there are fewer GPUs than ranks, ranks share
them. The algorithms then go through the host; "ipc" uses the memory of the GPU that all
ranks share, and "nccl" is NCCL itself, which needs a GPU for each rank.
"""

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common, programs
from benchmarks.common import SHARED_MEMORY, TCP
from benchmarks.lab import Lab, LabError, Link, Program
from benchmarks.launch import FOLDER, RanksFailedError
from benchmarks.local_ranks import run_ranks

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
BETWEEN_HOSTS = "TCP between hosts"  # links between these hosts have no rate limit
# Largest allowed share of Gloo's median for each of SIZES.
BARS = {
    TCP: dict(zip(SIZES, (0.25, 0.25, 0.9, 0.9, 0.85), strict=True)),
    SHARED_MEMORY: dict(zip(SIZES, (0.1, 0.1, 0.25, 0.35, 0.45), strict=True)),
}
BARS[BETWEEN_HOSTS] = BARS[TCP]
# For two ranks over TCP, each of which has a core of its own here.
PAIR_BARS = dict.fromkeys(SIZES, 0.8)
# On slow links Gloo is as fast as the links.
SLOW_LINK_BARS = {MIB: 1.1, 16 * MIB: 1.1}
CPU, CUDA = "cpu", "cuda"
ALGORITHMS = ("direct", "ring", "halving_doubling", "tree", "two_level", "one_owner")
# Further methods for tensors on GPUs.
BETWEEN_DEVICES = ("ipc", "nccl")
DEFAULT_ALGORITHMS = {CPU: "direct", CUDA: "direct,ipc"}
LIMIT_S = 900
RANKS_FILE = "allreduce_ranks.py"


def size_name(num_bytes: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if num_bytes % unit == 0:
            return f"{num_bytes // unit} {name}"
    return f"{num_bytes} B"


def parse_size(text: str) -> int:
    """Bytes from "4K", "64M" or "4096"."""
    unit = {"K": KIB, "M": MIB}.get(text[-1:].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    if not digits.isdecimal() or int(digits) * unit % 4 or int(digits) == 0:
        raise typer.BadParameter(
            f"{text!r}: a size is a multiple of 4 bytes, such as 4K, 64M or 4096"
        )
    return int(digits) * unit


def parse_algorithms(text: str | None, device: str = CPU) -> list[str]:
    """Names of algorithms from "ring,tree" or "all"; "auto" lets aikido choose."""
    if device not in (CPU, CUDA):
        raise typer.BadParameter(f"{device!r}: a device is cpu or cuda")
    names = (text or DEFAULT_ALGORITHMS[device]).split(",")
    if text == "all":
        names = list(ALGORITHMS)
    known = (*ALGORITHMS, *(BETWEEN_DEVICES if device == CUDA else ()))
    for name in names:
        if name not in (*known, "auto"):
            raise typer.BadParameter(
                f"{name!r}: an algorithm is {', '.join(known)}, auto, or all"
            )
    return names


def spread(
    ranks: int, hosts: int | None, mbit: float | None, *, interleaved: bool = False
) -> list[int]:
    """The host of each rank; neighbouring ranks are on one host, or on different
    hosts.
    """
    if hosts is not None and mbit is None:
        raise typer.BadParameter("hosts have links: give their rate with --mbit")
    if hosts is not None and hosts > ranks:
        raise typer.BadParameter(
            f"{hosts} hosts for {ranks} ranks; each has one or more"
        )
    if interleaved and hosts is None:
        raise typer.BadParameter(
            "ranks are interleaved on hosts: say how many (--hosts)"
        )
    num_hosts = hosts or ranks
    return [
        r % num_hosts if interleaved else r * num_hosts // ranks for r in range(ranks)
    ]


def transport_of(*, tcp: bool, mbit: float | None, unshaped: bool) -> str:
    if unshaped and mbit is not None:
        raise typer.BadParameter("links have a rate (--mbit), or none (--unshaped)")
    if unshaped:
        return BETWEEN_HOSTS
    return TCP if tcp or mbit is not None else SHARED_MEMORY


def measure(
    console: Console,
    *,
    host_of: list[int],
    algorithms: list[str],
    sizes: list[int],
    iterations: int,
    alternations: int,
    mbit: float | None,
    device: str,
    least_over: str | None,
    on_hosts: bool,
) -> tuple[dict[int, dict[str, common.Samples]], int]:
    """Milliseconds by size and method, and the number of operations with a late start.

    Raises RanksFailedError, LabError or BuildError.
    """
    if least_over is not None:
        programs.build(common.LEAST_LIBRARY)
    plan = {
        "algorithms": algorithms,
        "sizes": sizes,
        "iterations": iterations,
        "alternations": alternations,
        "device": device,
        "least_over": least_over,
    }
    taken: dict[int, dict[str, common.Samples]] = {}
    num_late = 0
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("measuring", total=len(sizes) * alternations)

        def on_event(event: dict) -> None:
            nonlocal num_late
            progress.advance(bar, event.get("done", 0))
            if "seconds" in event:
                num_late += event["num_late"]
                taken[event["num_bytes"]] = {
                    name: common.Samples(tuple(1e3 * s for s in values))
                    for name, values in event["seconds"].items()
                }

        if not on_hosts:
            run_ranks(
                RANKS_FILE,
                json.dumps(plan),
                num_ranks=len(host_of),
                limit_s=LIMIT_S,
                on_event=on_event,
            )
        else:
            links = [Link(up_mbit=mbit, down_mbit=mbit)] * len(set(host_of))
            with Lab(links) as lab:
                lab.run(
                    Program(FOLDER / RANKS_FILE, (json.dumps(plan),)),
                    host_of=host_of,
                    deadline_s=LIMIT_S,
                    on_event=lambda rank, event: on_event(event),
                )
    return taken, num_late


def table_of(
    taken: dict[int, dict[str, common.Samples]],
    transport: str,
    num_ranks: int,
    mbit: float | None = None,
    hosts: int | None = None,
    device: str = CPU,
) -> Table:
    title = f"allreduce{on_device(device)} over {transport}{at_rate(mbit, hosts)}, ms"
    table = Table(title=title, title_justify="left")
    for column in (
        "size", "algorithm", "aikido", "p95", "gloo", "p95", "spreads", "ratio", "bar",
        "least",
    ):  # fmt: skip
        table.add_column(column, justify="right", no_wrap=True)
    for num_bytes, algorithm, samples in cases(taken):
        ours, reference = samples[algorithm], samples["gloo"]
        result = judged(
            num_bytes, algorithm, samples, transport, num_ranks, mbit, hosts, device
        )
        verdict = ""
        if result.bar is not None:
            verdict = f"{result.bar:g} " + ("holds" if result.holds else "[red]no[/]")
        table.add_row(
            size_name(num_bytes),
            algorithm,
            f"{ours.median:.3g}",
            f"{ours.p95:.3g}",
            f"{reference.median:.3g}",
            f"{reference.p95:.3g}",
            f"{ours.spread:.0%} {reference.spread:.0%}",
            f"{result.ratio:.2f}",
            verdict,
            f"{samples['least'].median:.3g}" if "least" in samples else "",
        )
    return table


def cases(
    taken: dict[int, dict[str, common.Samples]],
) -> list[tuple[int, str, dict[str, common.Samples]]]:
    return [
        (num_bytes, name, samples)
        for num_bytes, samples in taken.items()
        for name in samples
        if name not in ("gloo", "least")
    ]


def at_rate(mbit: float | None, hosts: int | None) -> str:
    on_hosts = "" if hosts is None else f" on {hosts} hosts"
    return on_hosts if mbit is None else f"{on_hosts} at {mbit:g} Mbit/s"


def on_device(device: str) -> str:
    return "" if device == CPU else f" on {device}"


def bars(transport: str, num_ranks: int, mbit: float | None) -> dict[int, float]:
    """Bars by size in bytes, for ranks that have a link each."""
    if mbit is not None:
        return SLOW_LINK_BARS
    if transport != SHARED_MEMORY and num_ranks == 2:
        return PAIR_BARS
    return BARS[transport]


def judged(
    num_bytes: int,
    algorithm: str,
    samples: dict[str, common.Samples],
    transport: str,
    num_ranks: int,
    mbit: float | None = None,
    hosts: int | None = None,
    device: str = CPU,
) -> common.Result:
    """Result beside Gloo. A row has no bar if the least exchange misses the bar,
    too.
    """
    # The bars are for ranks with a link each, and for host memory.
    has_bar = algorithm == "direct" and hosts is None and device == CPU
    bar = bars(transport, num_ranks, mbit).get(num_bytes) if has_bar else None
    ms = {name: s.median for name, s in samples.items()}
    if "least" in ms:
        bar = common.within_reach(
            bar, value=ms[algorithm], least=ms["least"], reference=ms["gloo"]
        )
    by = "" if algorithm == "direct" else f" by {algorithm}"
    return common.Result.judge(
        f"allreduce {size_name(num_bytes)}{by}{on_device(device)}"
        f"{at_rate(mbit, hosts)}",
        unit="ms",
        value=ms[algorithm],
        reference=ms["gloo"],
        bar=bar,
    )


def late_sentence(num_late: int, taken: dict[int, dict[str, common.Samples]]) -> str:
    num_all = sum(len(s.values) for by in taken.values() for s in by.values())
    return (
        f"{num_late} of {num_all} operations had a late start: the machine was busy "
        "with something else, so take these figures with care."
    )


def rows_of(
    taken: dict[int, dict[str, common.Samples]], setting: dict[str, Any]
) -> list[dict[str, Any]]:
    """The results in `setting`, for a file."""
    where = [
        setting[name] for name in ("transport", "ranks", "mbit", "hosts", "device")
    ]
    return [
        dataclasses.asdict(judged(num_bytes, name, samples, *where))
        | {
            "p95": samples[name].p95,
            "spread": samples[name].spread,
            "reference_p95": samples["gloo"].p95,
            "reference_spread": samples["gloo"].spread,
            "num_samples": len(samples[name].values),
        }
        | ({"least": samples["least"].median} if "least" in samples else {})
        | setting
        for num_bytes, name, samples in cases(taken)
    ]


def main(
    json_file: common.JsonPath = None,
    ranks: Annotated[int, typer.Option(min=2, help="Ranks on this machine.")] = 4,
    sizes: Annotated[
        str, typer.Option(help="Bytes of float32, separated by commas.")
    ] = ",".join(size_name(s).replace("iB", "").replace(" ", "") for s in SIZES),
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="Algorithms of aikido, separated by commas, or all; default: direct, "
            "and with cuda also ipc."
        ),
    ] = None,
    iterations: Annotated[
        int, typer.Option(min=1, help="Measurements in a row with each backend.")
    ] = 6,
    alternations: Annotated[
        int, typer.Option(min=1, help="Number of turns of each backend.")
    ] = 4,
    mbit: Annotated[
        float | None,
        typer.Option(help="Use hosts with links of this rate, in Mbit/s; needs root."),
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(min=1, help="Number of hosts for the ranks; with --mbit."),
    ] = None,
    interleaved: Annotated[
        bool, typer.Option("--interleaved", help="Put neighbours on different hosts.")
    ] = False,
    unshaped: Annotated[
        bool, typer.Option("--unshaped", help="Use hosts with fast links; needs root.")
    ] = False,
    tcp: Annotated[
        bool, typer.Option("--tcp", help="Share no memory between ranks of aikido.")
    ] = False,
    device: Annotated[
        str, typer.Option(help="Device of the tensors: cpu or cuda.")
    ] = CPU,
    least: Annotated[
        bool, typer.Option(help="Also measure the least exchange, without --mbit.")
    ] = True,
) -> None:
    """Compares strict allreduce of aikido and Gloo, interleaved, on this machine."""
    console = common.console_for_tables()
    if tcp:
        os.environ["AIKIDO_TRANSPORT_SHARED_MEMORY_BYTES"] = "0"
    transport = transport_of(tcp=tcp, mbit=mbit, unshaped=unshaped)
    on_one_host = mbit is None and not unshaped
    try:
        taken, num_late = measure(
            console,
            host_of=spread(ranks, hosts, mbit, interleaved=interleaved),
            algorithms=parse_algorithms(algorithm, device),
            sizes=[parse_size(text) for text in sizes.split(",")],
            iterations=iterations,
            alternations=alternations,
            mbit=mbit,
            device=device,
            least_over=transport if least and mbit is None and device == CPU else None,
            on_hosts=not on_one_host,
        )
    except (RanksFailedError, LabError, programs.BuildError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    console.print(table_of(taken, transport, ranks, mbit, hosts, device))
    if num_late:
        console.print(late_sentence(num_late, taken))
    if json_file:
        setting = {
            "num_late": num_late,
            "ranks": ranks,
            "mbit": mbit,
            "hosts": hosts,
            "interleaved": interleaved,
            "transport": transport,
            "device": device,
            "machine": common.machine_facts(),
        }
        json_file.write_text(json.dumps(rows_of(taken, setting), indent=2) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
