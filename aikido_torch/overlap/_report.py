# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tables that show the plan of OverlappedDataParallel and its reasons."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aikido_torch import _C
from aikido_torch.ordering._batches import windows
from aikido_torch.ordering._costs import choose_collective, pipelining_depth
from aikido_torch.ordering._show import ms
from aikido_torch.overlap._iteration import Iteration, graph_of
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._retune import FIRST_ITERATIONS, Retune

__all__ = ["show"]

_MOST_ROWS = 40
_HOPS = 2  # hops of a direct allreduce: to the owner of a shard, and back


def show(
    layout: Layout,
    measured: Retune,
    *,
    num_bytes: Mapping[str, int],
    num_steps: int,
    members: int,
    console: Console | None = None,
) -> None:
    """Prints windows of parameters, the buckets, and the time of an iteration.

    Args:
        layout: the present layout.
        measured: measurements of this rank; its link is the cost of an allreduce.
        num_bytes: bytes of each parameter's gradient, by name.
        num_steps: number of steps that this rank has done.
        members: number of ranks.
        console: None is standard output.
    """
    console = console or Console()
    link, seconds = measured.link, measured.measured_s
    if link is None or seconds is None:
        console.print(
            f"plan: {layout.name}; nothing was measured in {num_steps} steps. "
            f"Measured times need 2 steps, and a plan needs {FIRST_ITERATIONS + 1}.",
            soft_wrap=True,
            highlight=False,
        )
        return
    iteration = measured.iteration
    console.print(_windows(layout, iteration, link, num_bytes))
    if members > 1:
        console.print(_buckets(layout, link, num_bytes, members))
    predicted = "nothing" if layout.predicted_s is None else _ms(layout.predicted_s)
    before = "" if measured.is_measured else " before this plan"
    lines = [
        f"plan: {layout.name}; iteration: predicted {predicted}, "
        f"measured {_ms(seconds)}{before}; computing {_ms(iteration.compute_s)}",
        f"an allreduce takes {_ms(link.alpha_s)} and {1e9 * link.beta_s:.3g} ns a byte"
        + _give_or_take(measured.uncertainty),
    ]
    if measured.trial.verdict:
        lines.append(measured.trial.verdict)
    for name, simulated_s in layout.candidates.items():
        lines.append(f"simulated: {_ms(simulated_s)} with {name}")
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _give_or_take(uncertainty: float | None) -> str:
    return "" if uncertainty is None else f", give or take {uncertainty:.0%}"


def message_cost(link: _C.LinkCost, members: int) -> _C.LinkCost:
    """Cost of one message, derived from the cost of a direct allreduce.

    A direct allreduce takes the time of two messages in a row, and transfers 2 (n-1) /
    n times the bytes of the tensor (csrc/collectives/README.md).
    """
    share = 2 * (members - 1) / members
    return _C.LinkCost(alpha_s=link.alpha_s / 2, beta_s=link.beta_s / share)


def _windows(
    layout: Layout,
    iteration: Iteration,
    link: _C.LinkCost,
    num_bytes: Mapping[str, int],
) -> Table:
    bucket_of = {n: i for i, names in enumerate(layout.buckets) for n in names}
    table = Table(title="Windows of parameters; ms from the last use in a forward")
    table.add_column("parameter", overflow="fold")
    for name in ("bytes", "takes", "ready", "first use", "slack", "bucket"):
        table.add_column(name, justify="right")
    found = windows(graph_of(iteration, num_bytes, link))
    for window in sorted(found, key=lambda window: window.ready_s)[:_MOST_ROWS]:
        name = window.transfer
        table.add_row(
            Text(name),
            f"{num_bytes[name]:,}",
            ms(link.time_s(num_bytes[name])),
            ms(window.ready_s),
            ms(window.first_use_s),
            ms(window.slack_s),
            str(bucket_of[name]),
        )
    if len(found) > _MOST_ROWS:
        table.caption = f"and {len(found) - _MOST_ROWS} more"
    return table


def _buckets(
    layout: Layout, link: _C.LinkCost, num_bytes: Mapping[str, int], members: int
) -> Table:
    """Table of buckets with the fastest collective; the collective in use is
    "direct".
    """
    message = message_cost(link, members)
    table = Table(title="Buckets, as they are sent; ms")
    for name in ("bucket", "parameters", "bytes", "goes", "takes", "least", "chunks"):
        table.add_column(name, justify="right")
    for number, (names, place) in enumerate(
        zip(layout.buckets[:_MOST_ROWS], layout.places, strict=False)
    ):
        size = sum(num_bytes[name] for name in names)
        best, seconds = choose_collective(members=members, bytes=size, link=message)
        depth, _ = pipelining_depth(bytes=size, hops=_HOPS, link=message)
        table.add_row(
            str(number),
            str(len(names)),
            f"{size:,}",
            f"{place + 1}.",
            ms(link.time_s(size)),
            f"{ms(seconds)} {best}",
            str(depth),
        )
    return table


def _ms(seconds: float) -> str:
    return f"{ms(seconds)} ms"
