# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`python -m aikido_torch.trace`: traces steps of a running job, and joins dumps."""

import os
from pathlib import Path
from typing import Annotated

import typer

from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.trace import read, report, write_chrome, write_html
from aikido_torch.trace._arm import check_places, fetch, write
from aikido_torch.trace._kineto import Profile, read_profile
from aikido_torch.trace._store import (
    Board,
    as_steps,
    collect,
    open_store,
)

app = typer.Typer(help="Traces of ranks as one.")

_Output = Annotated[Path, typer.Option(help="JSON that Perfetto opens.")]
_Store = Annotated[
    str | None,
    typer.Option(
        help="Of the job: tcp://host:port or file:///path; else MASTER_ADDR and "
        "MASTER_PORT."
    ),
]
_Dumps = Annotated[
    Path | None, typer.Option(help="Folder for the dump of each rank as well.")
]


@app.callback()
def _commands() -> None:
    """Traces of ranks as one."""


@app.command("merge")
def merge_command(
    dumps: Annotated[list[Path], typer.Argument(help="One of each rank.")],
    output: _Output,
    profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[RANK=]FILE",
            help="Of torch.profiler's export_chrome_trace, for the same file.",
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
    """ "3=FILE", or a file that says its rank itself."""
    rank, _, path = text.partition("=")
    if not path or not rank.isdecimal():
        return read_profile(text)
    found = read_profile(path)
    found.rank = int(rank)
    return found


@app.command("report")
def report_command(
    dumps: Annotated[list[Path], typer.Argument(help="One of each rank.")],
    html: Annotated[
        Path | None, typer.Option(help="Write a page as well, with a timeline.")
    ] = None,
) -> None:
    """Prints who made whom wait, and what ranks and links did."""
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
    steps: Annotated[str, typer.Option(help="First and last, such as 100:105.")],
    output: _Output,
    store: _Store = None,
    dumps: _Dumps = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for all ranks to be through.", min=1)
    ] = 600,
) -> None:
    """Traces steps of a running job on all ranks, fetches and joins what they saw.

    The step before them is traced too: verdicts on the first need to know its end.
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
    request: Annotated[int, typer.Option(help="The number that 'arm' has told.")],
    output: _Output,
    store: _Store = None,
    dumps: _Dumps = None,
) -> None:
    """Writes what 'arm' has got from the ranks, but could not write."""
    try:
        board = Board(open_store(store or _from_environment()))
        traces, notes = fetch(board, request, output=output, folder=dumps)
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{output}: what {len(traces)} ranks gave for request {request}")


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
