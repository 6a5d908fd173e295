# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands of `python -m aikido_torch.pipeline`: profile, partition and schedule."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.console import Console

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline import partition, schedule, show
from aikido_torch.pipeline._profile_command import profile_command
from aikido_torch.pipeline._typed import typed_errors
from aikido_torch.pipeline.plan._profile import read_profile, write_profile
from aikido_torch.pipeline.plan._schedule import Name, Schedule, Weights

app = typer.Typer(help="Pipelines: cut a model into stages, and schedule them.")

app.command("profile")(profile_command)

_Number = TypeVar("_Number", int, float)
_Times = TypeVar("_Times", list[float], list[float] | None)


class CostModel(StrEnum):
    """Names of the cost models, for the command line."""

    PAPER = "paper"
    PUBLISHED_CODE = "published_code"


@app.callback()
def _commands() -> None:
    """Pipelines: cut a model into stages, and schedule them."""


@app.command("partition")
def partition_command(
    context: typer.Context,
    profile: Annotated[
        Path,
        typer.Argument(
            help="Profile file, in the format of PipeDream.",
            exists=True,
            dir_okay=False,
        ),
    ],
    machines: Annotated[
        str,
        typer.Option(
            help="Number of machines by level, lowest first: 8,2 is 2 groups of 8."
        ),
    ],
    bandwidth: Annotated[
        str, typer.Option(help="Bytes per second between machines, by level: 30e9,3e9.")
    ] = "1e9",
    cost_model: Annotated[
        CostModel, typer.Option(help="Formulas of the costs.")
    ] = CostModel.PAPER,
    free_transfers: Annotated[
        bool,
        typer.Option("--free-transfers", help="Transfers of activations cost nothing."),
    ] = False,
    straight: Annotated[
        bool, typer.Option("--straight", help="No stage has replicas.")
    ] = False,
    fewer_machines: Annotated[
        bool, typer.Option("--fewer-machines", help="Machines may stay unused.")
    ] = False,
    memory: Annotated[
        float | None, typer.Option(help="Memory of a machine in bytes.")
    ] = None,
    max_cuts: Annotated[
        int, typer.Option(help="If there are more ways to cut, branches are joined.")
    ] = 5000,
    output: Annotated[
        Path | None, typer.Option(help="Write the profile with stages to this file.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the plan to this file.")
    ] = None,
) -> None:
    """Cuts a model into stages and prints the cost of each."""
    console = Console()
    with typed_errors(console, context):
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
            max_cuts=max_cuts,
        )
        show(plan, console=console)
        if output is not None:
            write_profile(output, read, plan=plan)
        if json_file is not None:
            json_file.write_text(json.dumps(_as_dict(plan), indent=2) + "\n")


_OverlapSums = Annotated[
    bool,
    typer.Option(
        "--overlap-sums", help="1f1b_async: replicas go on during gradient sums."
    ),
]


@app.command("schedule")
def schedule_command(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="gpipe, 1f1b, 1f1b_async, interleaved_1f1b or zero_bubble; or a file "
            "with the text of a schedule."
        ),
    ],
    stages: Annotated[int, typer.Option(help="Number of stages.")] = 0,
    micro_batches: Annotated[int, typer.Option(help="Number of micro-batches.")] = 0,
    replicas: Annotated[
        str | None, typer.Option(help="Number of ranks of each stage: 3,1.")
    ] = None,
    stages_per_rank: Annotated[
        int, typer.Option(help="For interleaved_1f1b and zero_bubble.")
    ] = 1,
    weights: Annotated[
        str | None, typer.Option(help="For 1f1b_async: stash, vertical_sync or 2bw.")
    ] = None,
    micro_batches_per_step: Annotated[
        int | None, typer.Option(help="For 1f1b_async: micro-batches of one update.")
    ] = None,
    warmups: Annotated[
        str | None, typer.Option(help="Forwards before the first backward: 4,1,0.")
    ] = None,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute activations again.")
    ] = False,
    overlap_sums: _OverlapSums = False,
    forward: Annotated[
        str, typer.Option(help="Forward times of stages: 1 or 1,2,1.")
    ] = "1",
    backward: Annotated[
        str | None, typer.Option(help="Backward times; default: 2 * forward.")
    ] = None,
    links: Annotated[str, typer.Option(help="Times of transfers: 0.1.")] = "0",
    slow: Annotated[
        list[str] | None, typer.Option(help="A slow rank and its factor: 2:1.5.")
    ] = None,
    max_activations: Annotated[
        int | None, typer.Option(help="Limit of micro-batches in memory of a rank.")
    ] = None,
    max_slots: Annotated[int, typer.Option(help="Columns of the grid.")] = 200,
    text: Annotated[
        bool, typer.Option("--text", help="Print the instructions as well.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="File for a picture (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Prints the work of each rank over time, and the memory that it needs."""
    console = Console()
    with typed_errors(console, context):
        made = _made_or_read(
            name,
            stages=stages,
            micro_batches=micro_batches,
            replicas=_optional(replicas, int, "--replicas"),
            stages_per_rank=stages_per_rank,
            weights=cast(Weights | None, weights),
            micro_batches_per_step=micro_batches_per_step,
            warmups=_optional(warmups, int, "--warmups"),
            recompute=recompute,
            overlap_sums=overlap_sums,
        )
        made.validate(max_activations=max_activations)
        simulation = made.simulate(
            forward=_one_or_all(_numbers(forward, float, "--forward")),
            backward=_one_or_all(_optional(backward, float, "--backward")),
            links=_one_or_all(_numbers(links, float, "--links")),
            slowdown=dict(_slow_rank(one) for one in slow or ()),
        )
        if text:
            console.print(made.text(), end="", soft_wrap=True, markup=False)
        made.show(simulation, console=console, max_slots=max_slots)
        if plot is not None:
            made.plot(plot, simulation)


def _made_or_read(name: str, **options: Any) -> Schedule:
    if Path(name).is_file():
        try:
            return Schedule.parse(Path(name).read_text())
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: {error}") from None
    if Path(name).name != name:
        raise ConfigError(f"{name}: there is no such file with a schedule")
    return schedule(cast(Name, name), **options)


def _one_or_all(times: _Times) -> float | _Times:
    return times[0] if times is not None and len(times) == 1 else times


def _optional(
    text: str | None, kind: Callable[[str], _Number], name: str
) -> list[_Number] | None:
    return None if text is None else _numbers(text, kind, name)


def _slow_rank(text: str) -> tuple[int, float]:
    rank, colon, factor = text.partition(":")
    if not (rank and colon and factor):
        raise typer.BadParameter(
            f"'{text}'; it takes a rank and its factor, such as 2:1.5.",
            param_hint="--slow",
        )
    return _numbers(rank, int, "--slow")[0], _numbers(factor, float, "--slow")[0]


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
