# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A table of who was skipped and why."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from aikido_torch import _C

__all__ = ["report"]


def report(
    outcomes: Iterable[_C.Outcome], *, console: Console | None = None
) -> dict[int, dict[str, int]]:
    """Prints how often each rank was skipped, by reason, and returns the same.

    Args:
        outcomes: of the calls to report on, such as `handle.outcomes` of
            `aikido_torch.ddp.register`.
        console: where to print; None is standard output.

    Returns:
        For each rank that was skipped at least once, reason to number of calls.
    """
    total = 0
    late: dict[int, Counter[str]] = {}
    deadlines: dict[int, float] = {}
    for outcome in outcomes:
        total += 1
        for rank in outcome.skipped:
            late.setdefault(rank, Counter())[outcome.reason] += 1
            deadlines[rank] = max(deadlines.get(rank, 0.0), outcome.deadline_ms)
    table = Table(title=f"Skipped contributions in {total} calls")
    table.add_column("rank", justify="right")
    table.add_column("skipped", justify="right")
    table.add_column("share", justify="right")
    table.add_column("why")
    table.add_column("longest deadline", justify="right")
    for rank, reasons in sorted(late.items()):
        count = reasons.total()
        why = ", ".join(f"{name} {n}" for name, n in reasons.most_common())
        table.add_row(
            str(rank),
            str(count),
            f"{count / total:.1%}",
            why,
            f"{deadlines[rank]:.1f} ms",
        )
    (console or Console()).print(table)
    return {rank: dict(reasons) for rank, reasons in sorted(late.items())}
