# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands of `python -m aikido_torch.elastic`: run members, show and change a job."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from aikido_torch.elastic._agent import Agent, Launch, python_command, serve_store
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._metrics import serve_metrics
from aikido_torch.elastic._notices import evicted_members
from aikido_torch.elastic._restarts import RestartPolicy
from aikido_torch.elastic._status import Status
from aikido_torch.errors import AikidoError, ConfigError

app = typer.Typer(help="Jobs whose members come and go.")

# Members of other machines read the store once more when the job is over.
_STORE_END_S = 5.0


class RoleName(StrEnum):
    """Roles, for the command line."""

    RELIABLE = "reliable"
    TRANSIENT = "transient"


@app.callback()
def _commands() -> None:
    """Jobs whose members come and go."""


@app.command(
    "run",
    # Everything behind the program belongs to the program.
    context_settings={"allow_interspersed_args": False},
)
def run_command(
    program: Annotated[str, typer.Argument(help="Script that each process runs.")],
    endpoint: Annotated[
        str, typer.Option("--rdzv-endpoint", help="Store of the job, as host:port.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the program.")
    ] = None,
    nproc_per_node: Annotated[
        int, typer.Option(help="Number of processes on this machine.")
    ] = 1,
    role: Annotated[
        RoleName, typer.Option(help="Role of the members on this machine.")
    ] = RoleName.TRANSIENT,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve-store",
            help="This agent serves the store. One agent of a job does, on a reliable "
            "machine.",
        ),
    ] = False,
    job: Annotated[str, typer.Option("--rdzv-id", help="Name of the job.")] = "job",
    max_restarts: Annotated[
        int, typer.Option(help="Restarts of a process within 10 minutes.")
    ] = 3,
    grace: Annotated[
        float,
        typer.Option(help="Seconds from a notice until the processes are killed."),
    ] = 30.0,
    log_dir: Annotated[
        str | None, typer.Option(help="Folder for the output of the processes.")
    ] = None,
    module: Annotated[
        bool, typer.Option("--module", "-m", help="The program is a Python module.")
    ] = False,
    no_python: Annotated[
        bool, typer.Option("--no-python", help="The program is no Python script.")
    ] = False,
) -> None:
    """Runs the processes of this machine, and replaces those that die.

    A healthy process is never restarted. SIGTERM, SIGINT, SIGHUP and SIGUSR1 are
    eviction notices: the agent passes them on, and starts no process after them.
    """
    if module and no_python:
        raise typer.BadParameter("--module and --no-python exclude each other.")
    kind = "module" if module else "program" if no_python else "script"
    with _errors():
        launch = Launch(
            python_command(program, arguments or [], kind),
            nproc_per_node,
            endpoint,
            role=role.value,
            job=job,
            grace_s=grace,
            log_dir=log_dir,
            policy=RestartPolicy(max_restarts=max_restarts),
        )
        store = serve_store(endpoint) if serve else None
        code = Agent(launch, tell=_tell).run()
    if store is not None:
        time.sleep(_STORE_END_S)
        del store
    raise typer.Exit(code)


_Endpoint = Annotated[
    str | None,
    typer.Option(
        "--rdzv-endpoint",
        help="Store of the job, as host:port; default: MASTER_ADDR and MASTER_PORT.",
    ),
]
_JobName = Annotated[str, typer.Option("--rdzv-id", help="Name of the job.")]


@app.command("status")
def status_command(endpoint: _Endpoint = None, job: _JobName = "job") -> None:
    """Shows the step, the stage and the members of a running job."""
    with _errors():
        status = _status_of(_job_at(endpoint, job), job)
        console = Console(soft_wrap=True, highlight=False)
        table = Table("rank", "member", "role", "host", "process")
        for row in status.rows():
            table.add_row(*row)
        console.print(table)
        console.print(
            f"step {status.step}, epoch {status.epoch}, stage {status.stage}, "
            f"{status.steps_lost} steps lost, {status.stall_s:.1f} s of stall, goodput "
            f"{status.goodput:.1%}, written {_age_s(status):.0f} s ago"
        )


@app.command("stage")
def stage_command(endpoint: _Endpoint = None, job: _JobName = "job") -> None:
    """Shows the stage of a running job and its reason."""
    with _errors():
        status = _status_of(_job_at(endpoint, job), job)
        typer.echo(status.stage_reason)


@app.command("evict")
def evict_command(
    rank: Annotated[int, typer.Argument(help="Rank, as `status` shows it.")],
    endpoint: _Endpoint = None,
    job: _JobName = "job",
    warning: Annotated[
        float, typer.Option(help="Seconds until the member is evicted.")
    ] = 30.0,
) -> None:
    """Gives a member an eviction notice: it and the other members of its host leave at
    the next boundary of a step.
    """
    with _errors():
        if not (math.isfinite(warning) and warning >= 0):
            raise ConfigError(
                f"elastic evict: --warning is {warning}; it takes seconds from 0 on."
            )
        store = _job_at(endpoint, job)
        status = _status_of(store, job)
        member = status.rank_of(rank)
        hosts = {str(m.number): m.host for m in status.members}
        leaving = evicted_members([str(member.number)], hosts)
        others = [name for name in leaving if name != str(member.number)]
        store.set(f"evict/{member.number}", str(warning))
        typer.echo(
            f"rank {rank} is member {member.number} ({member.role}) on "
            f"{member.host or 'an unknown host'}; it has the notice, {warning:g} s"
        )
        if others:
            typer.echo(f"these members of its host leave, too: {', '.join(others)}")


@app.command("metrics")
def metrics_command(
    endpoint: _Endpoint = None,
    job: _JobName = "job",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 9465,
) -> None:
    """Serves the gauges of a running job for Prometheus until it is interrupted."""
    with _errors():
        store = _job_at(endpoint, job)
        _, thread = serve_metrics(
            job, lambda: _read_status(store), host=host, port=port
        )
        thread.join()


def _job_at(endpoint: str | None, job: str) -> Endpoint:
    if endpoint is None:
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        if not host or not port:
            raise ConfigError(
                "elastic: where is the job? Give --rdzv-endpoint host:port, or set "
                "MASTER_ADDR and MASTER_PORT."
            )
        endpoint = f"{host}:{port}"
    return Endpoint(endpoint, job)


def _read_status(store: Endpoint) -> Status | None:
    text = store.read("status")
    return None if text is None else Status.decode(text)


def _status_of(store: Endpoint, job: str) -> Status:
    status = _read_status(store)
    if status is None:
        raise ConfigError(
            f"elastic: the job {job!r} at {store.address} has written no status; it "
            "has not begun, or has another name (--rdzv-id)."
        )
    return status


def _age_s(status: Status) -> float:
    return max(0.0, time.time() - status.written_s)


@contextmanager
def _errors() -> Iterator[None]:
    """Context that prints an error of the library and ends with code 1."""
    try:
        yield
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _tell(line: str) -> None:
    typer.echo(f"aikido elastic: {line}", err=True)


if __name__ == "__main__":
    app()
