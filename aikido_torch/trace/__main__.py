# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands of `python -m aikido_torch.trace`: trace a running job, and join traces."""

import os
from pathlib import Path
from typing import Annotated

import typer

from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.trace import read, report
from aikido_torch.trace.export._chrome import write_chrome
from aikido_torch.trace.export._html import write_html
from aikido_torch.trace.export._kineto import Profile, read_profile
from aikido_torch.trace.export._request import check_places, fetch, write
from aikido_torch.trace.record._trace_store import (
    Board,
    as_steps,
    collect,
    open_store,
)

app = typer.Typer(help="Traces of all ranks of a job.")

_Output = Annotated[Path, typer.Option(help="JSON file for Perfetto.")]
_Store = Annotated[
    str | None,
    typer.Option(
        help="Store of the job: tcp://host:port or file:///path; default: MASTER_ADDR "
        "and MASTER_PORT."
    ),
]
_Dumps = Annotated[
    Path | None, typer.Option(help="Folder for the trace of each rank as well.")
]


@app.callback()
def _commands() -> None:
    """Traces of all ranks of a job."""


@app.command("merge")
def merge_command(
    dumps: Annotated[list[Path], typer.Argument(help="Trace files, one of each rank.")],
    output: _Output,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[RANK=]FILE",
            help="File of torch.profiler's export_chrome_trace to include.",
        ),
    ] = None,
) -> None:
    """Writes the traces of all ranks into one file, by one clock."""
    try:
        profiles = [_profile_of(text) for text in profile or ()]
        notes = write_chrome(output, [read(path) for path in dumps], profiles=profiles)
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def _profile_of(text: str) -> Profile:
    """Profile from "3=FILE", or from a file that names its rank."""
    rank, _, path = text.partition("=")
    if not path or not rank.isdecimal():
        return read_profile(text)
    found = read_profile(path)
    found.rank = int(rank)
    return found


@app.command("report")
def report_command(
    dumps: Annotated[list[Path], typer.Argument(help="Trace files, one of each rank.")],
    html: Annotated[
        Path | None, typer.Option(help="Write an HTML page with a timeline as well.")
    ] = None,
) -> None:
    """Prints which ranks made others wait, and the times of ranks and links."""
    try:
        traces = [read(path) for path in dumps]
        report(traces)
        if html is not None:
            write_html(html, traces)
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command("arm")
def arm_command(
    steps: Annotated[str, typer.Option(help="First and last step, such as 100:105.")],
    output: _Output,
    store: _Store = None,
    dumps: _Dumps = None,
    timeout: Annotated[
        float,
        typer.Option(help="Seconds until all ranks must have done the steps.", min=1),
    ] = 600,
) -> None:
    """Traces steps of a running job on all ranks, and joins the traces.

    The step before them is traced too, because verdicts on the first step need its end.
    """
    try:
        first, last = as_steps(steps)
        check_places(output, dumps)
        board = Board(open_store(store or _from_environment()))
        found, notes, number = collect(board, first, last, timeout_s=timeout)
        traces, more = write(board, number, found, output=output, folder=dumps)
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    for note in notes + more:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{output}: steps {first} to {last} of {len(traces)} ranks")


@app.command("fetch")
def fetch_command(
    request: Annotated[int, typer.Option(help="Number that 'arm' has printed.")],
    output: _Output,
    store: _Store = None,
    dumps: _Dumps = None,
) -> None:
    """Writes the traces that 'arm' received but could not write."""
    try:
        board = Board(open_store(store or _from_environment()))
        traces, notes = fetch(board, request, output=output, folder=dumps)
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{output}: traces of {len(traces)} ranks for request {request}")


def _from_environment() -> str:
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise ConfigError(
            "Where is the job? Give --store tcp://host:port or file:///path, or set "
            "MASTER_ADDR and MASTER_PORT."
        )
    return f"tcp://{host}:{port}"


if __name__ == "__main__":
    app()
