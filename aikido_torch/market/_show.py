# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tables of the market tools, for a terminal."""

from collections.abc import Sequence

from rich.table import Table

from aikido_torch.market._beta import BetaTable
from aikido_torch.market._compare import Line

__all__ = ["alternatives_table", "beta_rows", "compare_rows", "events_table"]


def beta_rows(tables: Sequence[BetaTable]) -> Table:
    """A row for each market: beta by delta, and the minutes to eviction."""
    table = Table(title="probability of eviction within the horizon, by delta in USD/h")
    table.add_column("market")
    for delta in tables[0].deltas:
        table.add_column(f"{delta:g}", justify="right")
    table.add_column("starts", justify="right")
    for one in tables:
        betas = [f"{beta:.4f}" for beta in one.betas]
        table.add_row(one.market, *betas, str(one.starts))
        minutes = [f"{m:.0f} min" if m == m else "-" for m in one.minutes]
        table.add_row("  median time to eviction", *minutes, "", style="dim")
    return table


def compare_rows(lines: Sequence[Line], *, title: str) -> Table:
    """A row for each policy, with its cost beside that of the planner."""
    table = Table(title=title)
    table.add_column("policy")
    for name in ("USD per job", "beside planner", "hours", "missed", "refunded hours"):
        table.add_column(name, justify="right")
    planner = next(line.usd for line in lines if line.policy == "planner")
    for line in lines:
        hours = f"{line.seconds / 3600:.1f}" if line.seconds == line.seconds else "-"
        table.add_row(
            line.policy,
            f"{line.usd:.2f}",
            f"{line.usd / planner - 1:+.1%}" if planner else "-",
            hours,
            f"{line.missed} of {line.jobs}",
            f"{line.free_share:.1%}",
        )
    return table


def events_table(rows: Sequence[tuple[float, str, str]], *, title: str) -> Table:
    """Changes of a simulated job: (seconds, machines, reason)."""
    table = Table(title=title)
    table.add_column("hour", justify="right")
    table.add_column("machines")
    table.add_column("reason")
    for seconds, machines, reason in rows:
        table.add_row(f"{seconds / 3600:.2f}", machines, reason)
    return table


def alternatives_table(found: Sequence[tuple[str, float]], *, unit: str) -> Table:
    """The alternatives of a decision with their expected costs."""
    table = Table(title="alternatives, the cheapest first")
    table.add_column("action")
    table.add_column(unit, justify="right")
    for text, cost in found:
        table.add_row(text, f"{cost:.5g}")
    return table
