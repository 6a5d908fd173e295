# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One iteration on one link: how long it takes with an order, and at best."""

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
    """When each op of one iteration runs, and when all is done.

    Args:
        order: all transfers, by name, first to last; not looked at for "fifo".
        link: what it sends next: "fifo" what was ready first; "in_order" the next of
            the order, for which it waits; "priority" of what is ready the first of the
            order, chosen again after each chunk; "preemptive" the same at any moment.
        chunk_bytes: of "priority"; 0 is whole transfers.
        compute: "when_ready", or in the order of the "program" as eager PyTorch.
        processors: how many ops compute at the same time.

    Raises:
        ConfigError: the order is no order of the transfers or cannot be kept, or an
            option makes no sense.
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
    """The best order of up to 8 transfers, and its time in s, by trying all of them.

    Raises:
        ConfigError: there are more transfers, or an option makes no sense.
    """
    return _C.best_order(
        graph,
        link=link,
        chunk_bytes=chunk_bytes,
        compute=compute,
        processors=processors,
    )


def bounds(graph: _C.OpGraph) -> _C.Bounds:
    """What an iteration takes at most and at least, on one link and one processor.

    `bounds(graph).efficiency(makespan_s)` is TicTac's scheduling efficiency E, 0 to 1;
    `.speed_up` its S, what the best order can win over the worst; `.ratio` is
    communication by computing.
    """
    return _C.iteration_bounds(graph)
