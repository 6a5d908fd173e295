# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Plans the transfers of an iteration by simulating several plans."""

import math
from dataclasses import dataclass

from aikido_torch import _C
from aikido_torch.ordering._batches import plan_batches, windows
from aikido_torch.ordering._orders import tac
from aikido_torch.ordering._simulate import ComputeRule, LinkRule, simulate

__all__ = ["IterationPlan", "plan_iteration"]


@dataclass(frozen=True, kw_only=True)
class IterationPlan:
    """The batches of transfers of an iteration, and their order.

    Attributes:
        batches: Names of the transfers in each batch, from the first batch to the last.
        graph: The graph of the iteration with one transfer for each batch.
        order: Names of these transfers, from first to last.
        timeline: The simulated iteration with this plan.
        name: Name of the plan in `candidates`.
        candidates: Iteration times of all simulated plans by name, in seconds.
    """

    batches: tuple[tuple[str, ...], ...]
    graph: _C.OpGraph
    order: tuple[str, ...]
    timeline: _C.Timeline
    name: str
    candidates: dict[str, float]


def plan_iteration(
    graph: _C.OpGraph,
    *,
    link: _C.LinkCost,
    most_bytes: float = math.inf,
    link_rule: LinkRule = "preemptive",
    chunk_bytes: float = 0,
    compute: ComputeRule = "program",
) -> IterationPlan:
    """Simulates six plans and returns the fastest. The method is our own.

    There are three groupings: no batches, batches by `plan_batches` from the order in
    which transfers are ready, and batches by `plan_batches` from the order of TAC. Each
    is simulated in two orders: that of TAC, and that in which its batches are ready.
    `plan_batches` is exact only for a link that sends batches in their order. A link
    that chooses again during the iteration may do better with other batches, so several
    plans are tried.

    Args:
        graph: The ops of an iteration, for example from `Captured.iteration_graph`.
        link: The cost of a transfer by its bytes. It replaces the times of the
            transfers in the graph.
        most_bytes: The limit of a batch with several transfers.
        link_rule: As `link` of `simulate`. "fifo" makes no sense, because it ignores
            orders.
        chunk_bytes: As for `simulate`.
        compute: As for `simulate`.

    Returns:
        The plan with the shortest iteration; among equals, that with the fewest
        batches.

    Raises:
        ConfigError: As for `plan_batches` and `simulate`.
    """
    graph = graph.with_link(link)
    plans: list[IterationPlan] = []
    candidates: dict[str, float] = {}
    for batched_by, batched, members in _batched(graph, link, most_bytes):
        for ordered_by, order in (
            ("TAC", tac(batched).transfers),
            ("ready", _ready(batched)),
        ):
            timeline = simulate(
                batched, order, link=link_rule, chunk_bytes=chunk_bytes, compute=compute
            )
            name = f"{batched_by}, by {ordered_by}"
            candidates[name] = timeline.makespan_s
            plans.append(
                IterationPlan(
                    batches=tuple(members[transfer] for transfer in order),
                    graph=batched,
                    order=order,
                    timeline=timeline,
                    name=name,
                    candidates=candidates,
                )
            )
    return min(plans, key=lambda it: (it.timeline.makespan_s, len(it.batches)))


def _batched(
    graph: _C.OpGraph, link: _C.LinkCost, most_bytes: float
) -> list[tuple[str, _C.OpGraph, dict[str, tuple[str, ...]]]]:
    """Each grouping: its name, its graph, and the members of each of its batches."""
    alone: dict[str, tuple[str, ...]] = {name: (name,) for name in graph.transfers}
    found = [("alone", graph, alone)]
    orders = {"ready": _ready(graph), "TAC": tac(graph).transfers}
    for name, order in orders.items():
        plan = plan_batches(graph, order, link=link, most_bytes=most_bytes)
        members = [tuple(batch.transfers) for batch in plan.batches]
        together = dict(zip(plan.graph.transfers, members, strict=True))
        found.append((f"batches of {name}", plan.graph, together))
    return found


def _ready(graph: _C.OpGraph) -> tuple[str, ...]:
    """Transfers by the time at which they are ready; equal times keep the graph's
    order.
    """
    ready_s = {w.transfer: w.ready_s for w in windows(graph)}
    return tuple(sorted(graph.transfers, key=ready_s.__getitem__))
