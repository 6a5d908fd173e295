# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Picture of a schedule over time, in a file."""

import os
from typing import TYPE_CHECKING

from aikido_torch import _C
from aikido_torch._colors import COLORS
from aikido_torch._figures import new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_schedule"]

_COLOURS = {
    "forward": COLORS["forward"][0],
    "recompute": COLORS["forward"][1],
    "backward": COLORS["backward"][0],
    "input_gradient": COLORS["backward"][0],
    "weight_gradient": COLORS["backward"][1],
    "step": COLORS["optimizer"][0],
}
_INCHES_PER_RANK = 0.45
_MOST_INCHES = 40.0
_LEAST_INCHES = 0.07  # least width of a box in inches that has room for a number


def plot_schedule(
    schedule: _C.Schedule, simulation: _C.Simulation, path: str | os.PathLike[str]
) -> None:
    """Draws a row for each rank and a box for each instruction, with its
    micro-batch.
    """
    count = len(schedule.ranks)
    width = min(_MOST_INCHES, max(6.0, 0.25 * len(simulation.spans) / count))
    height = min(_MOST_INCHES, 1.2 + _INCHES_PER_RANK * count)
    figure = new_figure("schedules", inches=(width, height), instead="print the grid")
    from matplotlib.patches import Patch

    axes = figure.subplots()
    axes.set_xlim(0, simulation.makespan or 1.0)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(count), [f"rank {rank}" for rank in range(count)])
    axes.set_xlabel("time")
    axes.set_title(
        f"{schedule.name}: {len(schedule.stages)} stages, "
        f"{schedule.num_micro_batches} micro-batches"
    )
    kinds = _draw(axes, schedule, simulation, width)
    figure.legend(
        handles=[
            Patch(color=_COLOURS[kind], label=kind.replace("_", " ")) for kind in kinds
        ],
        loc="outside lower center",
        ncols=len(_COLOURS),
        fontsize=7,
    )
    save_figure(figure, path)


def _draw(
    axes: "Axes", schedule: _C.Schedule, simulation: _C.Simulation, width: float
) -> list[str]:
    """Returns the kinds of instructions that it has drawn."""
    ranks = schedule.ranks
    least = _LEAST_INCHES / width * simulation.makespan
    kinds: dict[str, None] = {}
    for span in simulation.spans:
        if span.end == span.begin:
            continue
        it = ranks[span.rank][span.instruction]
        kinds[it.kind] = None
        axes.broken_barh(
            [(span.begin, span.end - span.begin)],
            (span.rank - 0.4, 0.8),
            facecolor=_COLOURS[it.kind],
            edgecolor="white",
            linewidth=0.5,
        )
        if it.micro_batch is not None and span.end - span.begin >= least:
            axes.text(
                (span.begin + span.end) / 2,
                span.rank,
                str(it.micro_batch),
                ha="center",
                va="center",
                fontsize=7,
            )
    return list(kinds)
