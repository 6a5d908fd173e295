# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Prints progress, and tables of skipped ranks, reasons and stand-ins."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from aikido_torch import _C
from aikido_torch.straggler._progress import BatchSize
from aikido_torch.straggler._steps import StepCounters, Steps

__all__ = ["report"]


_MOST_ROWS = 40
_CAPTION = (
    "deadline: the longest that was waited for late ranks. cancelled bytes: of this "
    "rank's late data, not sent any more. this rank: did the step on its own, or "
    "replayed it from committed gradients, or copied the state of another rank."
)


def report(
    outcomes: Iterable[_C.Outcome],
    *,
    steps: Iterable[StepCounters] | None = None,
    batch_size: BatchSize | None = None,
    console: Console | None = None,
) -> dict[int, dict[str, int]]:
    """Prints how often each rank was skipped, by reason, and returns these numbers.

    With backups it also prints how often a backup stood in for each rank.

    Args:
        outcomes: outcomes of the calls to report on, such as `handle.outcomes` of
            `aikido_torch.ddp.register`.
        steps: counters of steps, such as `handle.by_step`. With them the first lines
            show steps per second and the share of all contributions that is in the
            results. A second table shows the last 40 steps in which a rank was skipped,
            a backup stood in for a rank, or this rank caught up. A sentence replaces a
            table without rows. A third table has the notes of `handle.by_step`, if
            there are any.
        batch_size: samples of one rank in one step: one number for all ranks, or a list
            by rank. With it progress is also shown in samples per second.
        console: where to print; None is standard output.

    Raises:
        ConfigError: `batch_size` does not have one number for each rank.

    Returns:
        For each rank that was skipped at least once: reason to number of calls. The
        reason "complete" is printed as "out of the group": all ranks of the view
        contributed, and the skipped rank is not in the view.
    """
    total = 0
    late: dict[int, Counter[str]] = {}
    deadlines: dict[int, float] = {}
    stand_ins: dict[int, Counter[int]] = {}
    for outcome in outcomes:
        total += 1
        for data_shard, backup in outcome.stand_ins:
            stand_ins.setdefault(data_shard, Counter())[backup] += 1
        for rank in outcome.skipped:
            late.setdefault(rank, Counter())[outcome.reason] += 1
            deadlines[rank] = max(deadlines.get(rank, 0.0), outcome.deadline_ms)
    table = Table(title=f"Skipped contributions in {total} calls")
    table.add_column("rank", justify="right")
    table.add_column("skipped", justify="right")
    table.add_column("of calls", justify="right")
    table.add_column("why")
    table.add_column("longest deadline", justify="right")
    if stand_ins:
        table.add_column("stood in for")
    for rank in sorted({*late, *stand_ins}):
        reasons = late.get(rank, Counter())
        count = reasons.total()
        why = ", ".join(f"{_told(name)} {n}" for name, n in reasons.most_common())
        row = [str(rank), str(count), f"{count / total:.1%}", why]
        row.append(f"{deadlines[rank]:.1f} ms" if rank in deadlines else "")
        if stand_ins:
            by = sorted(stand_ins.get(rank, Counter()).items())
            row.append(", ".join(f"by {backup} {n}" for backup, n in by))
        table.add_row(*row)
    console = console or Console()
    if steps is not None:
        steps = steps if isinstance(steps, Steps) else Steps(steps)
        if progress := steps.progress():
            for line in progress.lines(batch_size):
                console.print(line, soft_wrap=True)
        if steps.waiting and (compared := steps.waiting.line()):
            console.print(compared, soft_wrap=True)
    if table.rows:
        console.print(table)
    else:
        console.print(f"Nobody was skipped in {total} calls.")
    if steps is not None:
        by_step = _by_step(steps)
        console.print(by_step if by_step.rows else f"{by_step.title}.")
        if steps.notes:
            console.print(_notes(steps.notes))
    return {rank: dict(reasons) for rank, reasons in sorted(late.items())}


def _notes(notes: Iterable[str]) -> Table:
    table = Table(title="What keeps skipping from paying", show_header=False)
    for note in notes:
        table.add_row(note)
    return table


def _told(reason: str) -> str:
    # All ranks of the view contributed, so the skipped rank is excluded.
    return "out of the group" if reason == "complete" else reason


def _by_step(steps: list[StepCounters]) -> Table:
    told = [s for s in steps if not s.is_plain()]
    shown = told[-_MOST_ROWS:]
    has_stand_ins = any(s.stand_ins for s in steps)
    skipped_or = "skipped, stood in for" if has_stand_ins else "skipped"
    title = f"{len(told)} of {len(steps)} steps with somebody {skipped_or} or caught up"
    if len(shown) < len(told):
        title += f", the last {len(shown)}"
    table = Table(title=title, caption=_CAPTION, caption_justify="left")
    table.add_column("step", justify="right")
    table.add_column("skipped: why")
    if has_stand_ins:
        table.add_column("stood in for")
    table.add_column("deadline", justify="right")
    table.add_column("cancelled bytes", justify="right")
    table.add_column("this rank")
    for s in shown:
        skipped = "; ".join(
            f"{rank}: {', '.join(_told(name) for name, _ in reasons.most_common())}"
            for rank, reasons in sorted(s.skipped.items())
        )
        way = s.way if s.copied_from is None else f"copied from {s.copied_from}"
        deadline = f"{s.deadline_ms:.1f} ms" if s.skipped else ""
        stood_in = ", ".join(
            f"{data_shard} by {', '.join(map(str, sorted(by)))}"
            for data_shard, by in sorted(s.stand_ins.items())
        )
        row = [str(s.step), skipped, deadline, f"{s.cancelled_bytes:,}", way]
        table.add_row(*row[:2], *([stood_in] if has_stand_ins else []), *row[2:])
    return table
