# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`python -m aikido_torch.pipeline partition PROFILE --machines 4 --bandwidth 1e9`."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from aikido_torch import _C
from aikido_torch.errors import AikidoError
from aikido_torch.pipeline import partition, read_profile, show, write_profile

app = typer.Typer(help="Pipelines: cut a model into stages.")

_Number = TypeVar("_Number", int, float)


class CostModel(StrEnum):
    """Names of the cost models, for the command line."""

    PAPER = "paper"
    PUBLISHED_CODE = "published_code"


@app.callback()
def _commands() -> None:
    """Pipelines: cut a model into stages."""


@app.command("partition")
def partition_command(
    profile: Annotated[
        Path,
        typer.Argument(
            help="File of PipeDream's profiler.", exists=True, dir_okay=False
        ),
    ],
    machines: Annotated[
        str,
        typer.Option(help="How many; by level, lowest first: 8,2 is two groups of 8."),
    ],
    bandwidth: Annotated[
        str, typer.Option(help="Bytes a second between them, by level: 30e9,3e9.")
    ] = "1e9",
    cost_model: Annotated[
        CostModel, typer.Option(help="How costs are reckoned.")
    ] = CostModel.PAPER,
    free_transfers: Annotated[
        bool, typer.Option("--free-transfers", help="Activations travel for free.")
    ] = False,
    straight: Annotated[
        bool, typer.Option("--straight", help="No stage has replicas.")
    ] = False,
    fewer_machines: Annotated[
        bool, typer.Option("--fewer-machines", help="Some may be left idle.")
    ] = False,
    memory: Annotated[
        float | None, typer.Option(help="Bytes that a machine has.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the profile with stages to this file.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the plan to this file.")
    ] = None,
) -> None:
    """Cuts a model into stages and says what each costs."""
    console = Console()
    try:
        read = read_profile(profile)
        plan = partition(
            read,
            machines=_numbers(machines, int, "--machines"),
            bandwidth=_numbers(bandwidth, float, "--bandwidth"),
            cost_model=cost_model.value,
            count_transfers=not free_transfers,
            straight=straight,
            fewer_machines=fewer_machines,
            memory_bytes=memory,
        )
    except AikidoError as error:
        console.print(str(error), style="red", soft_wrap=True, markup=False)
        raise typer.Exit(1) from None
    show(plan, console=console)
    if output is not None:
        write_profile(output, read, plan=plan)
    if json_file is not None:
        json_file.write_text(json.dumps(_as_dict(plan), indent=2) + "\n")


def _numbers(text: str, kind: Callable[[str], _Number], name: str) -> list[_Number]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"'{text}'; it takes numbers with commas between them.", param_hint=name
        ) from None


def _as_dict(plan: _C.Plan) -> dict[str, Any]:
    def fields(of: object) -> dict[str, Any]:
        return {n: getattr(of, n) for n in dir(of) if not n.startswith("_")}

    return fields(plan) | {"stages": [fields(stage) for stage in plan.stages]}


if __name__ == "__main__":
    app()
