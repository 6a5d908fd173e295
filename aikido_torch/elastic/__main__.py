# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands of `python -m aikido_torch.elastic`: the agent of a machine."""

import time
from enum import StrEnum
from typing import Annotated

import typer

from aikido_torch.elastic._agent import Agent, Launch, python_command, serve_store
from aikido_torch.elastic._restarts import RestartPolicy
from aikido_torch.errors import AikidoError

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
    try:
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
    except AikidoError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if store is not None:
        time.sleep(_STORE_END_S)
        del store
    raise typer.Exit(code)


def _tell(line: str) -> None:
    typer.echo(f"aikido elastic: {line}", err=True)


if __name__ == "__main__":
    app()
