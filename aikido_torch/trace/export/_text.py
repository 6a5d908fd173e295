# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Report of traces for the terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from aikido_torch.trace.analyze._fitting import Column, fitting, spans_of
from aikido_torch.trace.analyze._summary import (
    Summary,
    note_of,
    part_of_verdict,
    ranks_of,
    sentence_on,
    summarize,
)
from aikido_torch.trace.analyze._units import ms, percent
from aikido_torch.trace.analyze._verdict import Verdict
from aikido_torch.trace.record._dump import Dump

__all__ = ["report"]

_MOST_STEPS = 40


def report(dumps: Iterable[Dump], *, console: Console | None = None) -> Summary:
    """Prints which ranks made others wait, and times of ranks and links; returns the
    same.

    A table has the columns that fit the width of the console. Empty tables are not
    printed.

    Args:
        dumps: traces of ranks of one job.
        console: where to print; None is standard output.

    Raises:
        ConfigError: the dumps belong to different jobs.
    """
    summary = summarize(dumps)
    console = console or Console()
    for note in summary.notes:
        console.print(escape(f"note: {note}"))
    for table in _tables(summary, console.width):
        if table.row_count:
            console.print(table)
    return summary


def _tables(summary: Summary, width: int) -> tuple[Table, ...]:
    return (
        _culprits(summary, width),
        _ranks(summary, width),
        _stages(summary, width),
        _backups(summary, width),
        _links(summary, width),
        _pauses(summary, width),
        _arrivals(summary, width),
    )


def _culprits(summary: Summary, width: int) -> Table:
    verdicts = summary.verdicts
    columns = [
        Column("steps", [f"{v.first_step}-{v.last_step}" for v in verdicts]),
        Column("rank", [ranks_of(v) for v in verdicts], importance=9),
        Column("cause", [v.cause for v in verdicts], importance=8),
        Column("part", [part_of_verdict(v) for v in verdicts], importance=3),
        Column("when", [_when(v) for v in verdicts], importance=2),
        Column("evidence", [v.evidence for v in verdicts], importance=7, is_text=True),
    ]
    return fitting("Who made the others wait", columns, width)


def _when(verdict: Verdict) -> str:
    return "" if verdict.pattern == "none" else verdict.pattern


def _ranks(summary: Summary, width: int) -> Table:
    ranks = summary.ranks.values()
    columns = [Column("rank", [str(rank) for rank in summary.ranks])]
    notes = [note_of(rank) for rank in ranks]
    if any(notes):
        columns.append(Column("note", notes, importance=9, is_text=True))
    for title, importance, values in (
        ("step", 8, [rank.step_ms for rank in ranks]),
        ("own work", 7, [rank.work_ms for rank in ranks]),
        ("of it data", 4, [rank.input_ms for rank in ranks]),
        ("waited", 6, [rank.waited_ms for rank in ranks]),
        ("wire", 5, [rank.wire_ms for rank in ranks]),
    ):
        columns.append(Column(title, [ms(value) for value in values], importance))
    last = [f"{rank.last:.0%}" for rank in ranks]
    columns.append(Column("last to call", last, importance=3))
    return fitting("Ranks, medians in ms", columns, width)


def _stages(summary: Summary, width: int) -> Table:
    if summary.pipeline is None:
        return fitting("Stages", [Column("stage")], width)
    stages = summary.pipeline.stages
    columns = [
        Column("stage", [str(each.stage) for each in stages]),
        Column("ranks", [spans_of(each.ranks) for each in stages], importance=9),
        Column("forward", [ms(each.forward_ms) for each in stages], importance=8),
        Column("backward", [ms(each.backward_ms) for each in stages], importance=7),
        Column("optimizer", [ms(each.optimizer_ms) for each in stages], importance=3),
        Column("bubble", [percent(each.bubble) for each in stages], importance=6),
    ]
    title = f"Stages, ms for a micro-batch: {sentence_on(summary.pipeline)}"
    return fitting(title, columns, width)


def _backups(summary: Summary, width: int) -> Table:
    all_of = summary.backups
    columns = [
        Column("primary", [str(each.primary) for each in all_of]),
        Column(
            "backup",
            ["none" if each.backup is None else str(each.backup) for each in all_of],
            importance=9,
        ),
        Column("stood in", [str(each.num_calls) for each in all_of], importance=8),
        Column("in steps", [str(each.num_steps) for each in all_of], importance=4),
        Column("MB", [f"{each.num_bytes / 1e6:.2f}" for each in all_of], importance=3),
        Column("itself", [str(each.num_own) for each in all_of], importance=6),
        Column("nobody", [str(each.num_without) for each in all_of], importance=7),
        Column("of", [str(each.num_all) for each in all_of], importance=5),
    ]
    return fitting("Primaries and who stood in for them, in calls", columns, width)


def _links(summary: Summary, width: int) -> Table:
    receivers = sorted({target for _, target in summary.rates})
    senders = sorted({source for source, _ in summary.rates})
    columns = [Column("", [f"from {sender}" for sender in senders])]
    for rank in receivers:
        rates = [summary.rates.get((sender, rank)) for sender in senders]
        cells = ["" if rate is None else f"{rate / 1e6:,.1f}" for rate in rates]
        # If not all columns fit, those of the slowest links stay.
        slowest = min((rate for rate in rates if rate is not None), default=0.0)
        columns.append(Column(f"to {rank}", cells, importance=-slowest))
    return fitting("Links in MB/s, senders in rows", columns, width)


def _pauses(summary: Summary, width: int) -> Table:
    pauses = summary.pauses
    columns = [
        Column("rank", [str(each.rank) for each in pauses]),
        Column("reason", [each.reason for each in pauses], importance=9, is_text=True),
        Column("how often", [str(each.num_pauses) for each in pauses], importance=2),
        Column("in all, ms", [ms(each.total_ms) for each in pauses], importance=3),
        Column("longest, ms", [ms(each.longest_ms) for each in pauses]),
    ]
    return fitting("Messages that stood still on their way", columns, width)


def _arrivals(summary: Summary, width: int) -> Table:
    steps = summary.steps[-_MOST_STEPS:]
    columns = [Column("step", [str(step) for step in steps])]
    for rank in sorted(summary.ranks):
        late = [summary.arrivals[step].get(rank) for step in steps]
        cells = ["" if each is None else ms(each) for each in late]
        # If not all columns fit, those of the latest ranks stay.
        total = sum(each for each in late if each is not None)
        columns.append(Column(f"rank {rank}", cells, importance=total))
    return fitting("Last calls, ms late", columns, width)
