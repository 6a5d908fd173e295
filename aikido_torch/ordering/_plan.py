# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A plan for the transfers of an iteration: chosen by simulating several."""

import math
from dataclasses import dataclass

from aikido_torch import _C
from aikido_torch.ordering._batches import plan_batches, windows
from aikido_torch.ordering._orders import tac
from aikido_torch.ordering._simulate import ComputeRule, LinkRule, simulate

__all__ = ["IterationPlan", "plan_iteration"]


@dataclass(frozen=True, kw_only=True)
class IterationPlan:
    """Which transfers go together, and in which order.

    Attributes:
        batches: names of the transfers of each, first batch to last.
        graph: of the iteration, with a transfer for each batch.
        order: of these, first to last.
        timeline: of the iteration with it.
        name: of the plan, among `candidates`.
        candidates: what each plan that was simulated takes, in s.
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
    """The best of six plans, by what the simulator says of each; ours.

    Transfers go alone, or in the batches that `plan_batches` makes of them in the order
    in which they are ready, or in that of TAC. These go by TAC, or as they are ready.
    `plan_batches` is exact for a link that takes batches in its order; one that chooses
    again and again may do better with other batches, which is why several are tried.

    Args:
        graph: such as `Captured.iteration_graph`.
        link: what a transfer takes; times of the graph's transfers are not looked at.
        most_bytes: of a batch of several.
        link_rule, chunk_bytes, compute: as of `simulate`, but for "fifo".

    Returns:
        Of plans that take as long that with the fewest batches.

    Raises:
        ConfigError: as `plan_batches` and `simulate`.
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
    """Graphs by what their batches are made of, and what is in each batch."""
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
    """Transfers as they are ready; those that are so together in the graph's order."""
    ready_s = {w.transfer: w.ready_s for w in windows(graph)}
    return tuple(sorted(graph.transfers, key=ready_s.__getitem__))
