# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Report of the effect of an order on the next iteration of a model."""

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
    """One iteration of a model, simulated without and with an order of its transfers.

    Attributes:
        captured: The measured layers of the model.
        graph: Its backward pass, the transfers of its gradients and its next forward
            pass.
        order: The order of the transfers.
        before: The iteration with transfers in the sequence in which they become ready.
        after: The iteration with transfers by the order, where a running transfer
            pauses for a ready transfer that is earlier in the order.
        bounds: The lower and upper bound of the iteration time.
    """

    captured: Captured
    graph: _C.OpGraph
    order: Order
    before: _C.Timeline
    after: _C.Timeline
    bounds: _C.Bounds

    @property
    def speed_up(self) -> float:
        """Time of the iteration without the order, divided by its time with the
        order.
        """
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
    """Simulates and prints one iteration of a model without and with an order.

    Layers have the times measured here, and each parameter has one transfer. Compute
    ops run in the program order, as in eager PyTorch. Each op of the next forward pass
    waits only for the transfers that it needs.

    Args:
        model: A model, or a model that was captured before.
        sample: Input of the model, as for `capture_graph`. Unused for a captured model.
        link: The cost of a transfer by its bytes, for example that of an allreduce.
        order: The algorithm that finds the order.
        picture: The file for a drawing of both timelines; needs Matplotlib.
        console: Where to print; None is standard output.

    Raises:
        ConfigError: As for `capture_graph`, and if the model has no trainable parameter
            that it uses.
        UnsupportedError: `picture` is given, and Matplotlib is not installed.
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
