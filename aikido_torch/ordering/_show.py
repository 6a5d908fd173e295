# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Prints timelines of one iteration as text, and a table of their transfers."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aikido_torch import _C
from aikido_torch._colors import TERMINAL, part_of

__all__ = ["ms", "part_of_op", "show_timelines", "style_of"]

_WIDTH = 60  # characters of the longest timeline
_MOST_ROWS = 40


def style_of(op: _C.Op) -> str:
    """The colour of an op, in text and in pictures."""
    return TERMINAL[part_of_op(op)]


def part_of_op(op: _C.Op) -> str:
    """The part of a training step to which an op belongs."""
    return "communication" if op.is_transfer else part_of(op.name)


def show_timelines(
    graph: _C.OpGraph,
    timelines: Mapping[str, _C.Timeline],
    *,
    order: Sequence[str],
    console: Console | None = None,
) -> None:
    """Prints each timeline under its title, with its time and efficiency.

    Args:
        graph: The ops of the iteration.
        timelines: Simulated iterations of this graph by title; at least one.
        order: Names of the transfers for the rows of the table; at most 40 are printed.
        console: Where to print; None is standard output.
    """
    console = console or Console()
    bounds = _C.iteration_bounds(graph)
    console.print(_summary(timelines, bounds))
    longest = max(t.makespan_s for t in timelines.values())
    for title, timeline in timelines.items():
        console.print(_picture(graph, title, timeline, longest))
    console.print(_transfers(graph, timelines, order))
    console.print(
        f"communication {ms(bounds.communication_s)} ms, computation "
        f"{ms(bounds.computation_s)} ms, {bounds.ratio:.2f} to 1; at best "
        f"{ms(bounds.lower_s)} ms, without any overlap {ms(bounds.upper_s)} ms",
        soft_wrap=True,
        highlight=False,
    )


def _summary(timelines: Mapping[str, _C.Timeline], bounds: _C.Bounds) -> Table:
    table = Table(title="One iteration")
    table.add_column("transfers")
    for name in ("takes ms", "waits ms", "efficiency", "pauses"):
        table.add_column(name, justify="right")
    for title, timeline in timelines.items():
        table.add_row(
            Text(title),
            ms(timeline.makespan_s),
            ms(timeline.makespan_s - bounds.computation_s),
            f"{bounds.efficiency(timeline.makespan_s):.2f}",
            str(timeline.pauses),
        )
    return table


def _picture(
    graph: _C.OpGraph, title: str, timeline: _C.Timeline, longest_s: float
) -> Text:
    """One row for compute and one for the link; each character is a slice of time."""
    styles = {op.name: style_of(op) for op in graph.ops}
    slice_s = longest_s / _WIDTH
    picture = Text(f"{title}\n")
    for name, is_link in (("compute", False), ("link", True)):
        picture.append(f"{name:>8} ")
        spans = [s for s in timeline.spans if (s.processor is None) == is_link]
        for begin in range(_WIDTH):
            most = _busiest(spans, begin * slice_s, (begin + 1) * slice_s)
            if most is not None:
                picture.append("█", style=styles[most.op])
            else:
                ended = begin * slice_s >= timeline.makespan_s
                picture.append(" " if ended else "·")
        picture.append("\n")
    return picture


def _busiest(
    spans: Sequence[_C.OpSpan], begin_s: float, end_s: float
) -> _C.OpSpan | None:
    """The op that runs longest in a slice; None if ops run in less than half of it."""

    def inside(span: _C.OpSpan) -> float:
        return max(0.0, min(span.end_s, end_s) - max(span.begin_s, begin_s))

    if sum(map(inside, spans)) < (end_s - begin_s) / 2:
        return None
    return max(spans, key=inside, default=None)


def _transfers(
    graph: _C.OpGraph, timelines: Mapping[str, _C.Timeline], order: Sequence[str]
) -> Table:
    ops = {op.name: op for op in graph.ops}
    windows = {w.transfer: w for w in _C.transfer_windows(graph)}
    table = Table(title="Transfers in their order; times in ms, slack without waiting")
    table.add_column("transfer", overflow="fold")
    for name in ("bytes", "takes", "ready", "slack"):
        table.add_column(name, justify="right")
    for title in timelines:
        table.add_column(f"done, {title}", justify="right")
    for name in order[:_MOST_ROWS]:
        window = windows[name]
        table.add_row(
            Text(name),
            f"{ops[name].bytes:,.0f}",
            ms(ops[name].time_s),
            ms(window.ready_s),
            ms(window.slack_s),
            *(ms(timeline.done_s[name]) for timeline in timelines.values()),
        )
    if len(order) > _MOST_ROWS:
        table.caption = f"and {len(order) - _MOST_ROWS} more"
    return table


def ms(seconds: float) -> str:
    """Formats a time in milliseconds with three digits, or as an integer from 100
    on.
    """
    time = seconds * 1e3
    return f"{time:,.0f}" if abs(time) >= 100 else f"{time:.3g}"
