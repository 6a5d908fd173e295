# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What an order would do for a model: its next iteration without and with it."""

import os
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from torch import nn

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.ordering._capture import Captured, Sample, capture_graph
from aikido_torch.ordering._orders import Order, tac, tic
from aikido_torch.ordering._plot import plot_timelines
from aikido_torch.ordering._show import show_timelines
from aikido_torch.ordering._simulate import bounds, simulate

__all__ = ["Report", "report"]

_ORDERS = {"tac": tac, "tic": tic}


@dataclass(frozen=True, kw_only=True)
class Report:
    """One iteration of a model, simulated with two orders of its transfers.

    Attributes:
        captured: the model.
        graph: its backward pass, its gradients, and its next forward pass.
        order: of the transfers.
        before: they go as they are ready.
        after: they go in the order, and pause for what comes before them in it.
        bounds: of the iteration's time.
    """

    captured: Captured
    graph: _C.OpGraph
    order: Order
    before: _C.Timeline
    after: _C.Timeline
    bounds: _C.Bounds

    @property
    def speed_up(self) -> float:
        """How many times as fast the iteration is with the order."""
        if self.after.makespan_s == 0:
            return 1.0
        return self.before.makespan_s / self.after.makespan_s


def report(
    model: nn.Module | Captured,
    sample: Sample | None = None,
    *,
    link: _C.LinkCost,
    order: Literal["tac", "tic"] = "tac",
    picture: str | os.PathLike[str] | None = None,
    console: Console | None = None,
) -> Report:
    """Prints one iteration of a model without and with an order of its transfers.

    It is simulated, with layers that were timed here and one transfer for each
    parameter: computing in the order of the program, as eager PyTorch does it, and the
    next forward pass waits for what it needs and no more.

    Args:
        model: or what was captured of one before.
        sample: what the model is called with, as of `capture_graph`; for what was
            captured before there is none.
        link: what a transfer takes, such as an allreduce of so many bytes.
        order: how it is found.
        picture: file to draw both timelines into; needs matplotlib.
        console: where to print; None is standard output.

    Raises:
        ConfigError: as `capture_graph`, and where nothing of the model is transferred.
        UnsupportedError: `picture` is asked for, and matplotlib is not installed.
    """
    if order not in _ORDERS:
        raise ConfigError(f"order is {order!r}; it takes {', '.join(_ORDERS)}")
    if isinstance(model, Captured):
        captured = model
    elif sample is None:
        raise ConfigError("a model is captured with a sample of what it is called with")
    else:
        captured = capture_graph(model, sample)
    if not captured.bytes:
        raise ConfigError(
            "nothing is transferred: the model has no parameter that is used and "
            "trained"
        )
    graph = captured.iteration_graph(link)
    found = _ORDERS[order](graph)
    made = Report(
        captured=captured,
        graph=graph,
        order=found,
        before=simulate(graph, link="fifo", compute="program"),
        after=simulate(graph, found, link="preemptive", compute="program"),
        bounds=bounds(graph),
    )
    timelines = {"as they are ready": made.before, f"by {order.upper()}": made.after}
    show_timelines(graph, timelines, order=found.transfers, console=console)
    if picture is not None:
        plot_timelines(graph, timelines, picture)
    return made
