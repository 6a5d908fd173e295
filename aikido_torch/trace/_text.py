# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A report of traces for the terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aikido_torch.trace._dump import Dump
from aikido_torch.trace._summary import Summary, summarize

__all__ = ["report"]

_MOST_STEPS = 40


def report(dumps: Iterable[Dump], *, console: Console | None = None) -> Summary:
    """Prints who made whom wait, and what ranks and links did; returns the same.

    Args:
        dumps: of ranks of one job.
        console: where to print; None is standard output.

    Raises:
        ConfigError: the dumps do not belong together.
    """
    summary = summarize(dumps)
    console = console or Console()
    for note in summary.notes:
        console.print(escape(f"note: {note}"))
    for table in _tables(summary):
        if table.row_count:
            console.print(table)
    if summary.arrivals:
        console.print(_arrivals(summary))
    return summary


def _tables(summary: Summary) -> tuple[Table, ...]:
    return (
        _culprits(summary),
        _ranks(summary),
        _backups(summary),
        _links(summary),
        _pauses(summary),
    )


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _culprits(summary: Summary) -> Table:
    table = _table("Who made the others wait", "steps", "rank", "cause", "when")
    table.add_column("evidence", max_width=70)
    for verdict in summary.verdicts:
        table.add_row(
            f"{verdict.first_step}-{verdict.last_step}",
            "" if verdict.rank is None else str(verdict.rank),
            verdict.cause,
            verdict.pattern,
            verdict.evidence,
        )
    return table


def _ranks(summary: Summary) -> Table:
    table = _table(
        "Ranks, medians in ms", "rank", "step", "own work", "of it data", "waited",
        "wire", "last to call", "skipped", "failed", "stopped",
    )  # fmt: skip
    for rank, own in summary.ranks.items():
        table.add_row(
            str(rank),
            *(f"{ms:.2f}" for ms in (own.step_ms, own.work_ms, own.input_ms)),
            *(f"{ms:.2f}" for ms in (own.waited_ms, own.wire_ms)),
            f"{own.last:.0%}",
            f"{own.skipped}/{own.num_calls}",
            str(own.failed),
            f"{own.stopped_ms:.0f}",
        )
    return table


def _backups(summary: Summary) -> Table:
    table = _table(
        "Primaries and who stood in for them, in calls", "primary", "backup",
        "stood in", "in steps", "MB", "itself", "nobody", "of",
    )  # fmt: skip
    for each in summary.backups:
        table.add_row(
            str(each.primary),
            "none" if each.backup is None else str(each.backup),
            *map(str, (each.num_calls, each.num_steps)),
            f"{each.num_bytes / 1e6:.2f}",
            *map(str, (each.num_own, each.num_without, each.num_all)),
        )
    return table


def _links(summary: Summary) -> Table:
    receivers = sorted({target for _, target in summary.rates})
    table = _table(
        "Links in MB/s, senders in rows", "", *(f"to {rank}" for rank in receivers)
    )
    for sender in sorted({source for source, _ in summary.rates}):
        cells = [summary.rates.get((sender, rank)) for rank in receivers]
        table.add_row(
            f"from {sender}", *("" if c is None else f"{c / 1e6:.1f}" for c in cells)
        )
    return table


def _pauses(summary: Summary) -> Table:
    table = _table(
        "Messages that stood still on their way", "rank", "reason", "how often",
        "in all, ms", "longest, ms",
    )  # fmt: skip
    for each in summary.pauses:
        table.add_row(
            str(each.rank),
            each.reason,
            str(each.num_pauses),
            f"{each.total_ms:.1f}",
            f"{each.longest_ms:.1f}",
        )
    return table


def _arrivals(summary: Summary) -> Table:
    ranks = sorted(summary.ranks)
    table = _table(
        "Last calls, ms late",
        "step",
        *(f"rank {rank}" for rank in ranks),
    )
    for step in summary.steps[-_MOST_STEPS:]:
        late = summary.arrivals[step]
        cells = [f"{late[rank]:.1f}" if rank in late else "" for rank in ranks]
        table.add_row(str(step), *cells)
    return table
