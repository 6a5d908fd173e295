# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Hosts with slow links on this machine, from the shell; needs root.

python benchmarks/lab check --hosts 3 --up 50 --slow 1:20
python benchmarks/lab run --hosts 4 --up 200 --down 200 -- program.py
python benchmarks/lab clean
"""

import functools
import inspect
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[2]))

from benchmarks.lab import Lab, LabError, Link, parse, remove_leftovers
from benchmarks.launch import RanksFailedError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help=__doc__.partition("\n")[0],
    pretty_exceptions_enable=False,
)


def links_of(
    *,
    hosts: Annotated[int, typer.Option(min=1, help="Number of hosts.")] = 4,
    up: Annotated[
        float | None,
        typer.Option(metavar="MBIT", help="Rate of each uplink; default: unlimited."),
    ] = None,
    down: Annotated[
        float | None,
        typer.Option(metavar="MBIT", help="Rate of each downlink; default: unlimited."),
    ] = None,
    slow: Annotated[
        list[str],
        typer.Option(
            metavar="HOST:UP[/DOWN]", help="Other rates for a host; repeatable."
        ),
    ] = [],  # noqa: B006  (typer reads it)
    queue_ms: Annotated[
        float, typer.Option(help="Length of each queue, as a time at its rate.")
    ] = 50.0,
    delay_ms: Annotated[
        float, typer.Option(help="Delay of every link, one way; in user space.")
    ] = 0.0,
    loss: Annotated[
        float, typer.Option(help="Share of frames lost, each way; in user space.")
    ] = 0.0,
) -> list[Link]:
    """Links from the options; a slow host without DOWN has UP both ways."""
    try:
        link = Link(
            up_mbit=up, down_mbit=down, queue_ms=queue_ms, delay_ms=delay_ms, loss=loss
        )
        links = [link] * hosts
        for text in slow:
            host, _, rates = text.partition(":")
            first, _, second = rates.partition("/")
            up_mbit, down_mbit = float(first), float(second or first)
            index = range(hosts).index(int(host))
            links[index] = replace(link, up_mbit=up_mbit, down_mbit=down_mbit)
    except ValueError as error:
        raise typer.BadParameter(
            f"{error}. A slow host is HOST:UP[/DOWN] in Mbit/s with HOST below "
            f"{hosts}, such as 1:20 or 1:20/50"
        ) from error
    return links


def with_links(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of links_of in place of `links`."""
    options = inspect.signature(links_of).parameters
    own = inspect.signature(command)

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        command(links=links_of(**{o: given.pop(o) for o in options}), **given)

    rest = [p for p in own.parameters.values() if p.name != "links"]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*options.values(), *rest)]
    with_options.__signature__ = own.replace(parameters=parameters)
    return with_options


def rate_text(mbit: float | None) -> str:
    return "not limited" if mbit is None else f"{mbit:g}"


@app.command()
@with_links
def check(
    links: list[Link],
    seconds: Annotated[float, typer.Option(help="Length of each measurement.")] = 1.0,
) -> None:
    """Measures each link: a TCP stream each way, and the idle round trip."""
    table = Table(title="links, Mbit/s", title_justify="left")
    for column in ("host", "up", "goodput", "down", "goodput", "round trip"):
        table.add_column(column, justify="right")
    last = len(links)
    with Lab([*links, Link()]) as lab:  # the last one measures the others
        for host, link in enumerate(links):
            table.add_row(
                str(host),
                rate_text(link.up_mbit),
                f"{lab.goodput_mbit(host, last, seconds=seconds):.1f}",
                rate_text(link.down_mbit),
                f"{lab.goodput_mbit(last, host, seconds=seconds):.1f}",
                f"{lab.round_trip_ms(host, last):.3f} ms",
            )
    Console().print(table)


@app.command()
@with_links
def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="A .py file runs under Python."),
    ],
    links: list[Link],
    spare: Annotated[
        int, typer.Option(min=0, help="Further hosts for traffic, without limits.")
    ] = 0,
    script: Annotated[
        str, typer.Option(help="File or text of a script: 'at 2 s kill member 1'.")
    ] = "",
    script_from: Annotated[
        str, typer.Option(help="Time 0 of the script: start, or ready (lab/rank.py).")
    ] = "start",
    deadline: Annotated[float, typer.Option(metavar="SECONDS")] = 600.0,
) -> None:
    """Runs COMMAND once on each host, as ranks of torch.distributed."""
    if script_from not in ("start", "ready"):
        raise typer.BadParameter(f"{script_from!r} is neither start nor ready")
    try:
        file = Path(script)
        events = parse(file.read_text() if script and file.is_file() else script)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if command[0].endswith(".py"):
        command = [sys.executable, *command]
    console = Console()
    with Lab([*links, *[Link()] * spare]) as lab:
        start = time.monotonic()
        try:
            ends = lab.run(
                command,
                num_ranks=len(links),
                deadline_s=deadline,
                events=events,
                script_from="ready" if script_from == "ready" else "start",
                check=False,
                on_line=lambda rank, line: print(f"[{rank}] {line}", flush=True),
                on_event=lambda rank, event: print(f"[{rank}] {event}", flush=True),
            )
        finally:
            console.print(traffic_table(lab, time.monotonic() - start))
    for end in ends:
        if end.exit_code:
            typer.echo(f"rank {end.rank} ended with code {end.exit_code}", err=True)
    if any(end.is_failure for end in ends):
        raise typer.Exit(1)


def traffic_table(lab: Lab, seconds: float) -> Table:
    table = Table(title=f"traffic in {seconds:.1f} s", title_justify="left")
    for column in ("host", "up MB", "Mbit/s", "lost", "down MB", "Mbit/s", "lost"):
        table.add_column(column, justify="right")
    for host in range(len(lab.links)):
        seen = lab.traffic(host)
        cells = [str(host)]
        for num_bytes, dropped in (
            (seen.up_bytes, seen.up_dropped),
            (seen.down_bytes, seen.down_dropped),
        ):
            rate = num_bytes * 8e-6 / seconds
            cells += [f"{num_bytes / 1e6:.1f}", f"{rate:.1f}", str(dropped)]
        table.add_row(*cells)
    return table


@app.command()
def clean() -> None:
    """Removes the leftovers of labs whose processes have died."""
    removed = remove_leftovers()
    typer.echo("\n".join(f"removed {name}" for name in removed) or "Nothing is left.")


def main() -> None:
    try:
        app()
    except (LabError, RanksFailedError) as error:
        typer.echo(str(error), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
