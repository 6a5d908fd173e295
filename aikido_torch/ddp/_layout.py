# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which gradients go together, who is sent when, and who goes first. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aikido_torch import _C
from aikido_torch.ddp._iteration import Iteration, graph_of
from aikido_torch.ordering import plan_iteration

__all__ = ["Layout", "by_module", "plain", "planned"]

Kinds = Mapping[str, object]

_BUCKET_S = 1e-3  # what a bucket is worth, at least
# Of DistributedDataParallel: its first bucket, and each other one.
_FIRST_BYTES, _MOST_BYTES = 1 << 20, 25 << 20
_MOST_ATOMS = 256  # finding an order takes the cube of them


@dataclass(frozen=True)
class Layout:
    """The same on all ranks.

    Attributes:
        buckets: names of their parameters, in the order in which they are sent.
        places: of each bucket on the wire, 0 first.
        predicted_s: of an iteration; None where nothing was measured yet.
        name: of the plan.
        candidates: what the plans that were simulated would take, in s.
        is_plain: sums are waited for in the backward, as DistributedDataParallel does.
    """

    buckets: tuple[tuple[str, ...], ...]
    places: tuple[int, ...]
    predicted_s: float | None = None
    name: str = "one for each module"
    candidates: Mapping[str, float] = field(default_factory=dict)
    is_plain: bool = False

    def sends_as(self, other: "Layout") -> bool:
        """Whether both send the same buckets in the same order, and wait alike."""
        return (self.buckets, self.places, self.is_plain) == (
            other.buckets, other.places, other.is_plain,
        )  # fmt: skip


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


def plain(ready: Sequence[str], num_bytes: Mapping[str, int], kinds: Kinds) -> Layout:
    """The buckets of DistributedDataParallel, sent in the order of their readiness."""
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
    """What `ordering.plan_iteration` takes for the best, for what was seen.

    Parameters that the iteration did not use, or that had no gradient, are sent last.
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


def _atoms(
    iteration: Iteration, num_bytes: Mapping[str, int], link: _C.LinkCost
) -> dict[str, list[str]]:
    """What is never apart, by the first name of each: small neighbours in readiness.

    A bucket costs a call of the optimizer and some messages, which no simulated link
    knows of, so less than the link carries in that time is not worth one.
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
    """The same with atoms: ready with the last, and used with the first of theirs."""
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
