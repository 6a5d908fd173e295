# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Windows of transfers, and which transfers go together."""

import math
from collections.abc import Sequence

from aikido_torch import _C
from aikido_torch.ordering._orders import Order, names_in

__all__ = ["plan_batches", "windows"]


def windows(graph: _C.OpGraph) -> list[_C.TransferWindow]:
    """From when to when each transfer could go, in an iteration that never waits.

    From the gradient that it sends (`ready_s`) to its first use (`first_use_s`), on one
    processor in the order of the program. `slack_s` is what it does not need of that:
    below 0 somebody waits for it, however early it goes.
    """
    return _C.transfer_windows(graph)


def plan_batches(
    graph: _C.OpGraph,
    order: Order | Sequence[str],
    *,
    link: _C.LinkCost,
    most_bytes: float = math.inf,
) -> _C.BatchPlan:
    """Which transfers go together as one, so that the iteration ends soonest.

    The best way to cut the order into batches, for one processor in the order of the
    program and a link that takes them in order.

    Args:
        order: all transfers, by name, first to last.
        link: what a transfer takes; times of the graph's transfers are not looked at.
        most_bytes: of a batch of several.

    Returns:
        The plan; its `graph` has the batches as transfers.

    Raises:
        ConfigError: the order is none of the transfers, or two that a batch holds need
            each other.
    """
    return _C.plan_batches(
        graph, order=names_in(order), link=link, most_bytes=most_bytes
    )
