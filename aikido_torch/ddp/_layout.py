# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which gradients go together, who is sent when, and who goes first. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aikido_torch import _C
from aikido_torch.ddp._iteration import Iteration, graph_of
from aikido_torch.ordering import plan_iteration

__all__ = ["Layout", "by_module", "planned"]

Kinds = Mapping[str, object]


@dataclass(frozen=True)
class Layout:
    """The same on all ranks.

    Attributes:
        buckets: names of their parameters, in the order in which they are sent.
        places: of each bucket on the wire, 0 first.
        predicted_s: of an iteration; None where nothing was measured yet.
        name: of the plan.
        candidates: what the plans that were simulated would take, in s.
    """

    buckets: tuple[tuple[str, ...], ...]
    places: tuple[int, ...]
    predicted_s: float | None = None
    name: str = "one for each module"
    candidates: Mapping[str, float] = field(default_factory=dict)


def by_module(ready: Sequence[str], uses: Sequence[str], kinds: Kinds) -> Layout:
    """A bucket for each module, in the order in which gradients become ready.

    Args:
        ready: all parameters, in that order.
        uses: all parameters, in the order of their first use.
        kinds: what must be equal within a bucket, by name.
    """
    groups: list[list[str]] = []
    for name in ready:
        last = groups[-1][-1] if groups else name
        is_alike = _owner(last) == _owner(name) and kinds[last] == kinds[name]
        if groups and is_alike:
            groups[-1].append(name)
        else:
            groups.append([name])
    return Layout(tuple(map(tuple, groups)), _places(groups, uses))


def planned(
    iteration: Iteration,
    num_bytes: Mapping[str, int],
    link: _C.LinkCost,
    kinds: Kinds,
) -> Layout:
    """What `ordering.plan_iteration` takes for the best, for what was seen.

    Parameters that the iteration did not use, or that had no gradient, are sent last.
    """
    plan = plan_iteration(graph_of(iteration, num_bytes, link), link=link)
    ready_s = dict(iteration.ready)
    batches = [part for batch in plan.batches for part in _split(batch, kinds)]
    rest = [name for name in num_bytes if not any(name in batch for batch in batches)]
    batches += [tuple(part) for part in _split(rest, kinds)]
    at = {batch: place for place, batch in enumerate(batches)}
    buckets = sorted(
        batches,
        key=lambda batch: max(ready_s.get(name, float("inf")) for name in batch),
    )
    return Layout(
        tuple(buckets),
        tuple(at[batch] for batch in buckets),
        plan.timeline.makespan_s,
        plan.name,
        plan.candidates,
    )


def _split(names: Iterable[str], kinds: Kinds) -> list[tuple[str, ...]]:
    found: dict[object, list[str]] = {}
    for name in names:
        found.setdefault(kinds[name], []).append(name)
    return [tuple(part) for part in found.values()]


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _places(groups: Sequence[Sequence[str]], uses: Sequence[str]) -> tuple[int, ...]:
    use = {name: place for place, name in enumerate(uses)}
    first = [min(use[name] for name in group) for group in groups]
    order = sorted(range(len(groups)), key=first.__getitem__)
    return tuple(order.index(number) for number in range(len(groups)))
