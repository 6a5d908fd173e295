# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Output of a schedule as a grid of ranks and time, with figures of each rank."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aikido_torch import _C
from aikido_torch._colors import TERMINAL

__all__ = ["show_schedule"]

_COLOURS = {
    "F": TERMINAL["forward"],
    "C": f"bright_{TERMINAL['forward']}",
    "B": TERMINAL["backward"],
    "I": TERMINAL["backward"],
    "W": f"bright_{TERMINAL['backward']}",
    "U": TERMINAL["optimizer"],
}


def show_schedule(
    schedule: _C.Schedule,
    validation: _C.Validation,
    simulation: _C.Simulation,
    *,
    grid: str,
    console: Console,
) -> None:
    """Prints the grid, a row of figures for each rank, and the total time."""
    picture = Text(grid.rstrip("\n"))
    for letter, colour in _COLOURS.items():
        picture.highlight_regex(rf"\b{letter}[\d.]*\b", colour)
    if console.is_terminal:
        console.print(picture, no_wrap=True, overflow="ellipsis")
    else:
        console.print(picture, soft_wrap=True)
    console.print(_table(schedule, validation, simulation))
    told = f"{schedule.num_micro_batches} micro-batches in {simulation.makespan:g}"
    if simulation.period is not None:
        told += f", one every {simulation.period:g} in between"
    told += f"; idle {sum(simulation.bubbles) / len(simulation.bubbles):.1%} of it"
    console.print(told, highlight=False, soft_wrap=True)


def _table(
    schedule: _C.Schedule, validation: _C.Validation, simulation: _C.Simulation
) -> Table:
    inputs = any(memory.inputs for memory in validation.ranks)
    table = Table(title=f"Schedule {schedule.name}, weights {schedule.weights}")
    for name in ("rank", "stages", "activations", *(["inputs"] if inputs else [])):
        table.add_column(name, justify="right")
    for name in ("versions", "lag", "busy", "idle"):
        table.add_column(name, justify="right")
    for rank, memory in enumerate(validation.ranks):
        stages = [s for s, ranks in enumerate(schedule.stages) if rank in ranks]
        lag = max((max(validation.lags[s]) for s in stages), default=0)
        table.add_row(
            str(rank),
            ", ".join(map(str, stages)),
            str(memory.activations),
            *([str(memory.inputs)] if inputs else []),
            str(memory.versions),
            str(lag),
            f"{simulation.busy[rank]:g}",
            f"{simulation.bubbles[rank]:.1%}",
        )
    return table
