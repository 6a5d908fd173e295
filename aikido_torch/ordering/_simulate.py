# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Simulation of one iteration on one link, and the bounds of its time."""

from collections.abc import Sequence
from typing import Literal

from aikido_torch import _C
from aikido_torch.ordering._orders import Order, names_in

__all__ = ["best_order", "bounds", "simulate"]

LinkRule = Literal["fifo", "in_order", "priority", "preemptive"]
ComputeRule = Literal["when_ready", "program"]


def simulate(
    graph: _C.OpGraph,
    order: Order | Sequence[str] = (),
    *,
    link: LinkRule = "priority",
    chunk_bytes: float = 0,
    compute: ComputeRule = "when_ready",
    processors: int = 1,
) -> _C.Timeline:
    """Simulates one iteration; returns the time of each op and of the whole iteration.

    Args:
        graph: The ops of the iteration.
        order: Names of all transfers, from first to last; unused for "fifo".
        link: The rule for the next transfer of the link. "fifo": the transfer that was
            ready first. "in_order": the next of the order, even if the link must wait
            for it. "priority": the first of the order among the ready transfers, chosen
            again after each chunk. "preemptive": the same, chosen again at any moment,
            so that a running transfer may pause.
        chunk_bytes: The size of a chunk for "priority"; 0: whole transfers.
        compute: The rule for the next compute op. "when_ready": the first of the
            program order that is ready. "program": strictly the program order, as in
            eager PyTorch.
        processors: The number of compute ops that run at the same time.

    Raises:
        ConfigError: The order is not an order of all transfers, it is impossible (a
            transfer needs a later transfer), or an option is invalid.
    """
    return _C.simulate_iteration(
        graph,
        order=names_in(order),
        link=link,
        chunk_bytes=chunk_bytes,
        compute=compute,
        processors=processors,
    )


def best_order(
    graph: _C.OpGraph,
    *,
    link: LinkRule = "in_order",
    chunk_bytes: float = 0,
    compute: ComputeRule = "when_ready",
    processors: int = 1,
) -> tuple[list[str], float]:
    """Finds the best order of at most 8 transfers by simulating all orders.

    The arguments are as for `simulate`, except that "fifo" is refused, because it has
    no order.

    Returns:
        The names from first to last, and the time of the iteration in seconds.

    Raises:
        ConfigError: There are more than 8 transfers, no order is possible, or an option
            is invalid.
    """
    return _C.best_order(
        graph,
        link=link,
        chunk_bytes=chunk_bytes,
        compute=compute,
        processors=processors,
    )


def bounds(graph: _C.OpGraph) -> _C.Bounds:
    """The upper and lower bound of the iteration time on one link and one processor.

    `bounds(graph).efficiency(makespan_s)` is the scheduling efficiency E of the TicTac
    paper (arXiv 1803.03288): 1 with full overlap, 0 without. `.speed_up` is its S: the
    gain in throughput of the best possible order over the worst, as a fraction.
    `.ratio` is the communication time divided by the compute time.
    """
    return _C.iteration_bounds(graph)
