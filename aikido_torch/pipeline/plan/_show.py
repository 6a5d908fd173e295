# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tables and pictures of a plan, and a table of layers."""

import re

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aikido_torch import _C
from aikido_torch._colors import TERMINAL
from aikido_torch.profile._profiler import Measurement

__all__ = ["show", "show_layers"]

_BAR = 40  # characters of the bar of the slowest stage
_MOST_MACHINES = 8  # most boxes that are drawn for one stage


def show(plan: _C.Plan, *, console: Console | None = None) -> None:
    """Prints the content and cost of each stage, and a picture of their load.

    Args:
        plan: a result of `partition`.
        console: where to print; None is standard output.
    """
    console = console or Console()
    console.print(_table(plan))
    console.print(_picture(plan))
    gain = plan.one_machine_s / plan.period_s if plan.period_s > 0 else 1.0
    against = plan.data_parallel_s / plan.period_s if plan.period_s > 0 else 1.0
    machines = "1 machine" if plan.machines == 1 else f"{plan.machines} machines"
    console.print(
        f"one mini-batch every {_ms(plan.period_s)} ms on {machines}: "
        f"{gain:.2f} times one machine ({_ms(plan.one_machine_s)} ms), {against:.2f} "
        f"times data parallelism on all ({_ms(plan.data_parallel_s)} ms)",
        soft_wrap=True,
        highlight=False,
    )
    if plan.note:
        console.print(Text(plan.note, style="yellow"), soft_wrap=True)


def show_layers(measured: Measurement, *, console: Console | None = None) -> None:
    """Prints times and sizes of each layer, and the times of the whole model.

    Args:
        measured: a result of `measure_model`.
        console: where to print; None is standard output.
    """
    console = console or Console()
    layers = measured.profile.layers
    table = Table(title=f"Layers, found by {measured.trace}", show_footer=True)
    table.add_column("layer", "all", overflow="fold")
    table.add_column("what", overflow="fold")
    sums = {
        "forward ms": _ms(sum(layer.forward_ms for layer in layers) / 1e3),
        "backward ms": _ms(sum(layer.backward_ms for layer in layers) / 1e3),
        "output": "",
        "weights": _bytes(sum(layer.parameter_bytes for layer in layers)),
    }
    for name, total in sums.items():
        table.add_column(name, total, justify="right", no_wrap=True)
    for layer in layers:
        table.add_row(
            Text(layer.id),
            Text(_without_arguments(layer.description)),
            _ms(layer.forward_ms / 1e3),
            _ms(layer.backward_ms / 1e3),
            _bytes(layer.activation_bytes),
            _bytes(layer.parameter_bytes),
        )
    console.print(table)
    console.print(
        f"the model in one piece: {_ms(measured.whole_forward_ms / 1e3)} ms forward, "
        f"{_ms(measured.whole_backward_ms / 1e3)} ms backward (medians of "
        f"{measured.repeats}); its layers take {measured.ratio:.2f} times as long",
        soft_wrap=True,
        highlight=False,
    )


def _table(plan: _C.Plan) -> Table:
    """Table of stages that fits into a terminal of 80 columns."""
    table = Table(
        title=f"Plan {plan.text}; times in ms", box=box.SIMPLE_HEAD, padding=0
    )
    for name in (
        "stage",
        "machines",
        "compute",
        "sync",
        "transfer",
        "every",
        "weights",
        "versions",
        "memory",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for number, stage in enumerate(plan.stages):
        machines = str(stage.machines)
        if len(stage.replicas) > 1:
            machines += f" ({' x '.join(map(str, stage.replicas))})"
        table.add_row(
            str(number),
            machines,
            _ms(stage.compute_s),
            _ms(stage.sync_s),
            _ms(stage.transfer_s),
            _ms(stage.period_s),
            _bytes(stage.parameter_bytes),
            str(stage.versions),
            _bytes(stage.memory_bytes),
        )
    return table


def _without_arguments(description: str) -> str:
    """The description without the text in brackets, which the profile file has."""
    while (shorter := re.sub(r"\([^()]*\)", "", description)) != description:
        description = shorter
    return description


def _layers(ids: list[str]) -> str:
    if len(ids) == 1:
        return f"layer {ids[0]}"
    return f"{len(ids)} layers, {ids[0]} ... {ids[-1]}"


def _picture(plan: _C.Plan) -> Text:
    """Boxes, a bar and the layers of each stage, and the transfer from the stage
    before.
    """
    boxes = [_boxes(stage.machines) for stage in plan.stages]
    width = max(map(len, boxes))
    label = len(str(len(plan.stages) - 1))
    picture = Text()
    for number, stage in enumerate(plan.stages):
        if number > 0:
            share = _share(stage.transfer_s, plan.period_s)
            picture.append(f"      {'':{label}}  {'│':<{width}}  ")
            picture.append("─" * _length(share), style=TERMINAL["communication"])
            picture.append(f" {_bytes(stage.input_bytes)} each way\n", style="dim")
        share = _share(stage.period_s, plan.period_s)
        picture.append(f"stage {number:>{label}}  {boxes[number]:<{width}}  ")
        picture.append("█" * _length(share), style=TERMINAL["forward"])
        picture.append(f" {share:.0%}\n")
        picture.append(f"      {'':{label}}  {'':{width}}  {_layers(stage.layers)}\n")
    return picture


def _boxes(machines: int) -> str:
    if machines <= _MOST_MACHINES:
        return "■" * machines
    return "■" * (_MOST_MACHINES - 1) + f"… {machines}"


def _share(seconds: float, slowest: float) -> float:
    return seconds / slowest if slowest > 0 else 0.0


def _length(share: float) -> int:
    return max(1 if share > 0 else 0, round(share * _BAR))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
