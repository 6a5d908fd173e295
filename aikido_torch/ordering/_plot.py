# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Draws timelines of one iteration into a picture file."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aikido_torch import _C
from aikido_torch._colors import COLORS
from aikido_torch._figures import new_figure, save_figure
from aikido_torch.ordering._show import ms, part_of_op

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_timelines"]

_INCHES = 11.0
_LEAST_SHARE = 0.03  # least share of the width for a box with a name


def plot_timelines(
    graph: _C.OpGraph,
    timelines: Mapping[str, _C.Timeline],
    path: str | os.PathLike[str],
) -> None:
    """Draws timelines below each other on one time scale, with rows for compute and
    link.

    Args:
        graph: The ops of the iteration.
        timelines: Simulated iterations of this graph by title; at least one.
        path: The file. Its suffix, such as .svg or .png, selects the format.

    Raises:
        UnsupportedError: Matplotlib is not installed.
        ConfigError: Matplotlib does not have this format.
    """
    longest = max(t.makespan_s for t in timelines.values())
    count = len(timelines)
    figure = new_figure(
        "timelines",
        inches=(_INCHES, 1.0 + 1.3 * count),
        instead="have the report printed",
    )
    rows = figure.subplots(count, sharex=True, squeeze=False)
    for axes, (title, timeline) in zip(rows[:, 0], timelines.items(), strict=True):
        _draw(axes, graph, timeline, longest)
        axes.set_title(f"{title}: {ms(timeline.makespan_s)} ms", loc="left", fontsize=9)
    rows[-1, 0].set_xlabel("ms")
    save_figure(figure, path)


def _draw(
    axes: "Axes", graph: _C.OpGraph, timeline: _C.Timeline, longest_s: float
) -> None:
    ops = {op.name: op for op in graph.ops}
    count = 1 + max((s.processor or 0 for s in timeline.spans), default=0)
    names = ["compute"] if count == 1 else [f"compute {i}" for i in range(count)]
    axes.set_yticks(range(count + 1), [*names, "link"])
    axes.set_ylim(count + 0.5, -0.5)
    axes.set_xlim(0, longest_s * 1e3 or 1.0)
    for span in timeline.spans:
        row = count if span.processor is None else span.processor
        length = span.end_s - span.begin_s
        axes.broken_barh(
            [(span.begin_s * 1e3, length * 1e3)],
            (row - 0.4, 0.8),
            facecolor=COLORS[part_of_op(ops[span.op])][0],
            edgecolor="white",
            linewidth=0.5,
        )
        if length >= _LEAST_SHARE * longest_s:
            middle = (span.begin_s + span.end_s) / 2 * 1e3
            axes.text(
                middle,
                row,
                span.op.removeprefix("forward ").removeprefix("backward "),
                ha="center",
                va="center",
                fontsize=6,
                clip_on=True,
            )
