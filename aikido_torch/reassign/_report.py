# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tables and a picture of the micro-batches that moved between ranks."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from aikido_torch._colors import COLORS
from aikido_torch._figures import new_figure, save_figure
from aikido_torch.reassign._log import AssignmentLog
from aikido_torch.reassign._pending import PendingItems

__all__ = ["Summary", "plot", "report", "saved_s", "summary_of"]

_INCHES_PER_RANK = 0.35


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Work of one rank in the logged steps.

    Attributes:
        rank: the rank.
        num_steps: steps that it began.
        num_own: own items that it computed.
        taken: items that it took and computed, by owner.
        num_given: own items that helpers took.
        num_lost, num_issued_again, num_dropped, num_pending: own items that were in no
            sum at first, and what became of them.
        steps: by step, the predicted cost of the items that it began with and of the
            items that it computed, and the seconds that these took.
    """

    rank: int
    num_steps: int
    num_own: int
    taken: dict[int, int]
    num_given: int
    num_lost: int
    num_issued_again: int
    num_dropped: int
    num_pending: int
    steps: dict[int, tuple[float, float, float]]

    @property
    def seconds(self) -> float:
        """Time that the rank computed."""
        return sum(seconds for *_, seconds in self.steps.values())


def summary_of(rank: int, log: AssignmentLog, pending: PendingItems) -> Summary:
    """Work of this rank."""
    owners = Counter(o for each in log.steps.values() for o, _ in each.computed)
    num_own = owners.pop(rank, 0)
    return Summary(
        rank=rank,
        num_steps=len(log.steps),
        num_own=num_own,
        taken=dict(owners),
        num_given=sum(each.num_given for each in log.steps.values()),
        num_lost=pending.num_lost,
        num_issued_again=pending.num_issued_again,
        num_dropped=pending.num_dropped,
        num_pending=len(pending),
        steps={
            step: (each.cost_begun, each.cost_computed, each.seconds)
            for step, each in log.steps.items()
        },
    )


def saved_s(ranks: Sequence[Summary]) -> tuple[float, float]:
    """Estimated seconds that the moves saved, and seconds of the slowest rank.

    Both are sums over the steps that all ranks began. Without moves a rank would have
    computed the items that it began with, at the speed that it has in the step. A rank
    without a computed item is left alone.
    """
    saved = total = 0.0
    common = set.intersection(*({*each.steps} for each in ranks)) if ranks else set()
    for step in common:
        rows = [each.steps[step] for each in ranks]
        alone = [
            seconds / computed * begun for begun, computed, seconds in rows if computed
        ]
        slowest = max(seconds for *_, seconds in rows)
        saved += max(0.0, max(alone, default=0.0) - slowest)
        total += slowest
    return saved, total


def report(ranks: Sequence[Summary], console: Console | None = None) -> None:
    """Prints the moves, the work of each rank, and the time that the moves saved."""
    console = console or Console()
    moves = _moves(ranks)
    saved, total = saved_s(ranks)
    if moves:
        console.print(_table_of_moves(moves, len(ranks[0].steps)))
        share = saved / (saved + total) if saved + total else 0.0
        console.print(
            f"The moves saved about {saved:.3g} s of {saved + total:.3g} s "
            f"({share:.1%}) of computation in the steps that all ranks began: the "
            "estimated time of the slowest rank without moves, less its time with "
            "them.",
            soft_wrap=True,
            highlight=False,
        )
    else:
        console.print(f"No micro-batch moved in {len(ranks[0].steps)} steps.")
    console.print(_table_of_ranks(ranks))


def _moves(ranks: Iterable[Summary]) -> list[tuple[int, int, int]]:
    """Helper, owner and number of items, most first."""
    found = [(r.rank, owner, n) for r in ranks for owner, n in r.taken.items()]
    return sorted(found, key=lambda row: (-row[2], row))


def _table_of_moves(moves: Iterable[tuple[int, int, int]], num_steps: int) -> Table:
    table = Table(title=f"Micro-batches that moved in {num_steps} steps")
    for name in ("helper", "owner", "micro-batches"):
        table.add_column(name, justify="right")
    for row in moves:
        table.add_row(*map(str, row))
    return table


def _table_of_ranks(ranks: Iterable[Summary]) -> Table:
    table = Table(
        title="Micro-batches of each rank",
        caption="lost: own ones that were in no sum at first. dropped: in no sum, and "
        "will not be. pending: will be issued again.",
        caption_justify="left",
    )
    for name in ("rank", "steps", "own", "taken", "given", "lost"):
        table.add_column(name, justify="right")
    for name in ("issued again", "dropped", "pending", "seconds"):
        table.add_column(name, justify="right")
    for each in ranks:
        counts = (
            *(each.rank, each.num_steps, each.num_own, sum(each.taken.values())),
            *(each.num_given, each.num_lost, each.num_issued_again),
            *(each.num_dropped, each.num_pending),
        )
        table.add_row(*map(str, counts), f"{each.seconds:.3g}")
    return table


def plot(ranks: Sequence[Summary], path: str | os.PathLike[str]) -> None:
    """Draws own and taken items of each rank as bars.

    Raises:
        UnsupportedError: matplotlib is not installed.
        ConfigError: matplotlib does not know the format.
    """
    figure = new_figure(
        "moved micro-batches",
        inches=(8.0, 1.2 + _INCHES_PER_RANK * len(ranks)),
        instead="have the report printed",
    )
    axes = figure.subplots()
    names = [f"rank {each.rank}" for each in ranks]
    own = [each.num_own for each in ranks]
    taken = [sum(each.taken.values()) for each in ranks]
    axes.barh(names, own, color=COLORS["forward"][0], label="own")
    axes.barh(names, taken, left=own, color=COLORS["backward"][0], label="taken over")
    axes.invert_yaxis()
    axes.set_xlabel("micro-batches computed")
    axes.legend()
    save_figure(figure, path)
