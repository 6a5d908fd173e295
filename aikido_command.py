# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The command `aikido`: lists the commands of aikido_torch and runs them.

This module lies outside of aikido_torch, because importing that imports torch, which
takes seconds. A command is imported when it runs.
"""

import importlib
import sys
from importlib import metadata
from typing import Annotated

import typer

__all__ = ["COMMANDS", "app", "main"]

# Command, with the module of its `app` and a description.
COMMANDS = {
    "doctor": (
        "aikido_torch.doctor",
        "Show the build and the settings, and test both on loopback.",
    ),
    "trace": (
        "aikido_torch.trace.__main__",
        "Trace steps of a running job; join, report and show traces.",
    ),
    "pipeline": (
        "aikido_torch.pipeline.__main__",
        "Profile a model, cut it into stages, and schedule them.",
    ),
    "elastic": (
        "aikido_torch.elastic.__main__",
        "Run members of a job whose machines come and go; show and evict them.",
    ),
    "market": (
        "aikido_torch.market.__main__",
        "Decide which machines to rent, and compare policies on recorded markets.",
    ),
}

app = typer.Typer(
    help="Collectives for PyTorch that need not wait for a late rank.",
    no_args_is_help=True,
    add_completion=False,
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"aikido-torch {metadata.version('aikido-torch')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options that belong to no command."""


def _add(name: str, module: str, text: str) -> None:
    # Everything behind the name, --help too, belongs to the command.
    rest = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(name, help=text, add_help_option=False, context_settings=rest)
    def run(context: typer.Context) -> None:
        try:
            command = importlib.import_module(module).app
        except ImportError as error:
            typer.echo(f"aikido {name}: {error}", err=True)
            raise typer.Exit(1) from None
        command(args=context.args, prog_name=context.command_path)


for _name, (_module, _text) in COMMANDS.items():
    _add(_name, _module, _text)


def main(program: str = "aikido") -> None:
    """Runs the command of this process's command line."""
    app(args=sys.argv[1:], prog_name=program)
