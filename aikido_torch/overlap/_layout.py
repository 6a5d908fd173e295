# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Bucket layouts: which gradients form a bucket, and in which order buckets are sent.
Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aikido_torch import _C
from aikido_torch.ordering import plan_iteration, simulate
from aikido_torch.overlap._iteration import Iteration, graph_of

__all__ = ["Layout", "by_module", "plain", "planned", "predict"]

Kinds = Mapping[str, object]

_BUCKET_S = 1e-3  # least transfer time that is worth a bucket of its own
# The bucket sizes of DistributedDataParallel: the first one, and all others.
_FIRST_BYTES, _MOST_BYTES = 1 << 20, 25 << 20
# Most units of a plan, because the planner takes time cubic in their number.
_MOST_ATOMS = 256


@dataclass(frozen=True)
class Layout:
    """Buckets and their order; equal on all ranks.

    Attributes:
        buckets: names of each bucket's parameters, in the order in which buckets are
            sent.
        places: priority of each bucket on the link; 0 is transferred first.
        predicted_s: predicted seconds of an iteration; None if nothing was measured.
        name: name of the plan.
        candidates: simulated seconds of an iteration, by name of the plan.
        is_plain: True if the backward waits for the sums, as in
            DistributedDataParallel.
    """

    buckets: tuple[tuple[str, ...], ...]
    places: tuple[int, ...]
    predicted_s: float | None = None
    name: str = "one for each module"
    candidates: Mapping[str, float] = field(default_factory=dict)
    is_plain: bool = False

    def sends_as(self, other: "Layout") -> bool:
        """True if both send the same buckets in the same order, and wait at the same
        places.
        """
        return (self.buckets, self.places, self.is_plain) == (
            other.buckets, other.places, other.is_plain,
        )  # fmt: skip


def by_module(ready: Sequence[str], uses: Sequence[str], kinds: Kinds) -> Layout:
    """A bucket for each module, in the order in which gradients become ready.

    Args:
        ready: names of all parameters, in the order in which their gradients are ready.
        uses: names of all parameters, in the order of their first use.
        kinds: values that must be equal within a bucket (dtype, device), by name.
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


def plain(ready: Sequence[str], num_bytes: Mapping[str, int], kinds: Kinds) -> Layout:
    """The buckets of DistributedDataParallel, sent in the order of their readiness.

    Args:
        ready: names of all parameters, in the order in which their gradients are ready.
        num_bytes: bytes of each gradient, by name.
        kinds: values that must be equal within a bucket, by name.
    """
    buckets: list[list[str]] = []
    size, most = 0, _FIRST_BYTES
    for name in ready:
        is_full = size >= most or (buckets and kinds[name] != kinds[buckets[-1][-1]])
        if not buckets or is_full:
            most = _MOST_BYTES if buckets else _FIRST_BYTES
            buckets.append([])
            size = 0
        buckets[-1].append(name)
        size += num_bytes[name]
    places = tuple(range(len(buckets)))
    return Layout(
        tuple(map(tuple, buckets)), places, name="plain buckets", is_plain=True
    )


def planned(
    iteration: Iteration,
    num_bytes: Mapping[str, int],
    link: _C.LinkCost,
    kinds: Kinds,
) -> Layout:
    """The best layout by `ordering.plan_iteration` for an observed iteration.

    Parameters that the iteration did not use, or that had no gradient, are sent last.

    Args:
        iteration: the observed times.
        num_bytes: bytes of each gradient, by name.
        link: cost of an allreduce.
        kinds: values that must be equal within a bucket, by name.
    """
    atoms = _atoms(iteration, num_bytes, link)
    coarse = _coarse(iteration, atoms)
    sizes = {first: sum(num_bytes[n] for n in names) for first, names in atoms.items()}
    plan = plan_iteration(graph_of(coarse, sizes, link), link=link)
    ready_s = dict(iteration.ready)
    whole = [[n for first in batch for n in atoms[first]] for batch in plan.batches]
    batches = [part for batch in whole for part in _split(batch, kinds)]
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


def predict(
    layout: Layout,
    iteration: Iteration,
    num_bytes: Mapping[str, int],
    link: _C.LinkCost,
) -> float:
    """Seconds of an iteration whose sums go on in the next forward.

    Args:
        layout: which is not plain.
        iteration: its parameters without use or gradient are not sent in time.
    """
    seen = {name for name, _ in iteration.uses} & {name for name, _ in iteration.ready}
    at: dict[str, int] = {}
    buckets: dict[str, list[str]] = {}
    for names, place in zip(layout.buckets, layout.places, strict=True):
        if known := [name for name in names if name in seen]:
            buckets[known[0]] = known
            at[known[0]] = place
    sizes = {
        first: sum(num_bytes[n] for n in names) for first, names in buckets.items()
    }
    graph = graph_of(_coarse(iteration, buckets), sizes, link)
    order = sorted(graph.transfers, key=at.__getitem__)
    timeline = simulate(graph, order, link="preemptive", compute="program")
    return timeline.makespan_s


def _atoms(
    iteration: Iteration, num_bytes: Mapping[str, int], link: _C.LinkCost
) -> dict[str, list[str]]:
    """Units that a plan never splits: small neighbours in the order of readiness.

    A bucket costs a call of the optimizer and some messages, which the simulated link
    does not model. So a bucket must have at least the bytes that the link transfers in
    `_BUCKET_S`.

    Returns:
        The names of each unit's parameters, by the first name of the unit.
    """
    used = {name for name, _ in iteration.uses}
    ready = [n for n, _ in iteration.ready if n in used and n in num_bytes]
    least = sum(num_bytes[name] for name in ready) / _MOST_ATOMS
    if link.beta_s > 0:
        least = max(least, _BUCKET_S / link.beta_s)
    found: dict[str, list[str]] = {}
    size = float("inf")
    for name in ready:
        if size < least:
            found[next(reversed(found))].append(name)
        else:
            found[name], size = [name], 0.0
        size += num_bytes[name]
    return found


def _coarse(iteration: Iteration, atoms: Mapping[str, Sequence[str]]) -> Iteration:
    """The iteration of the units: ready with their last gradient, used at their first
    use.
    """
    use, ready = dict(iteration.uses), dict(iteration.ready)
    uses = {first: min(use[n] for n in names) for first, names in atoms.items()}
    last = {first: max(ready[n] for n in names) for first, names in atoms.items()}
    return replace(
        iteration,
        uses=tuple(sorted(uses.items(), key=lambda mark: mark[1])),
        ready=tuple(sorted(last.items(), key=lambda mark: mark[1])),
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
