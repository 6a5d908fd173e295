# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Time windows of transfers, and their grouping into batches."""

import math
from collections.abc import Sequence

from aikido_torch import _C
from aikido_torch.ordering._orders import Order, names_in

__all__ = ["plan_batches", "windows"]


def windows(graph: _C.OpGraph) -> list[_C.TransferWindow]:
    """The time window of each transfer in an iteration that never waits for transfers.

    A window begins when the data of the transfer is ready (`ready_s`) and ends at its
    first use (`first_use_s`), for one processor that computes in the program order.
    `slack_s` is the rest of the window after the time of the transfer: its latest delay
    that nobody notices. It is negative if the first user has to wait even for a
    transfer that begins as soon as it is ready. Caramel (arXiv 2004.14020) calls the
    windows transfer boundaries; this computation is our own.
    """
    return _C.transfer_windows(graph)


def plan_batches(
    graph: _C.OpGraph,
    order: Order | Sequence[str],
    *,
    link: _C.LinkCost,
    most_bytes: float = math.inf,
) -> _C.BatchPlan:
    """Groups transfers into batches such that the iteration ends as early as possible.

    Each batch is a run of consecutive transfers of the order. The plan is exact for one
    processor that computes in the program order and a link that sends the batches in
    order. `csrc/ordering/batching.h` explains the method.

    Args:
        graph: The ops of one iteration.
        order: Names of all transfers, from first to last.
        link: The cost of a transfer by its bytes. It replaces the times of the
            transfers in the graph.
        most_bytes: The limit of a batch with several transfers. A larger transfer is a
            batch of its own.

    Returns:
        The plan. Its `graph` has one transfer for each batch.

    Raises:
        ConfigError: The order is not an order of all transfers of the graph, or two
            transfers of one batch depend on each other.
    """
    return _C.plan_batches(
        graph, order=names_in(order), link=link, most_bytes=most_bytes
    )
