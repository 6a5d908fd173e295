# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Division of a traced model into the layers of its profile.

Note [definition of a layer]
A call of a module that is a layer (`_recorder.layer_rule`) is a layer. An operation
between such calls, such as an attention or a matrix product, is a layer as well. But a
cheap operation, which moves, views or changes numbers one by one, is added to the layer
that made its input. If several layers made its inputs, as at the end of a residual
block, it is added to the last of them. No other layer depends on the last one yet, so
layers never need each other in a cycle.

An operation that depends only on inputs, constants or parameters is no layer. Each
layer that needs its result computes it again, so no rank has to send it.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import fx, nn

from aikido_torch.errors import ConfigError
from aikido_torch.profile._evaluate import Evaluation, Use, getter_of, tensors_in
from aikido_torch.profile._trace import Trace

__all__ = ["Part", "parts_of"]

# Names of torch operations in any form: views and copies, elementwise operations
# (torch.export also marks these with a tag), slightly costlier ones, and constructors.
_CHEAP_NAMES = """
    alias as_strided bfloat16 bool broadcast_to cat chunk clone concat contiguous copy
    cpu cuda detach double expand expand_as flatten flip float getattr getitem half
    index int lift_fresh_copy long masked_fill movedim narrow pad permute repeat
    repeat_interleave reshape reshape_as roll select size slice split squeeze stack
    split_with_sizes swapaxes t tensor_split tile to to_copy transpose tril triu type
    type_as unbind unflatten unsqueeze view view_as where

    abs add addcmul celu clamp clip cos div elu erf exp floordiv gelu glu hardsigmoid
    hardswish hardtanh iadd imul isub itruediv leaky_relu lerp log logical_and
    logical_not logical_or logsigmoid max maximum min minimum mish mul neg pow prelu
    radd reciprocal relu relu6 rmul rsqrt rsub selu sigmoid silu sin softplus softsign
    sqrt square sub tanh truediv

    alpha_dropout amax amin argmax dropout feature_alpha_dropout feature_dropout
    log_softmax mean softmax sum

    arange empty_like full full_like ones ones_like rand_like randn_like zeros
    zeros_like
"""
_CHEAP = frozenset(_CHEAP_NAMES.split())

_Kind = Literal["constant", "data", "weight", "layer"]


@dataclass
class Part:
    """One layer: its entries of the graph, and its inputs and outputs."""

    id: str
    description: str
    entries: list[fx.Node] = field(default_factory=list)
    inputs: list[fx.Node] = field(default_factory=list)
    # Outputs that other layers need.
    outputs: list[fx.Node] = field(default_factory=list)
    needs: list["Part"] = field(default_factory=list)
    parameters: list[nn.Parameter] = field(default_factory=list)
    activation_bytes: int = 0

    @property
    def parameter_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.parameters)


def parts_of(
    trace: Trace,
    done: Evaluation,
    model: nn.Module,
    *,
    shared: Literal["refuse", "merge", "keep"],
) -> list[Part]:
    """The layers, each after all layers that it needs.

    Args:
        trace: the traced graph.
        done: one evaluation of the graph.
        model: the model.
        shared: treatment of layers with a common parameter.

    Raises:
        ConfigError: layers have a common parameter and `shared` is "refuse".
    """
    return _Grouping(trace, done, model).parts(shared)


class _Grouping:
    """Groups of entries that form layers and never need each other in a cycle."""

    def __init__(self, trace: Trace, done: Evaluation, model: nn.Module) -> None:
        self._done = done
        self._model = model
        self._get = getter_of(trace, model)
        self._order = {entry: i for i, entry in enumerate(trace.graph.nodes)}
        self._kinds: dict[fx.Node, _Kind] = {}
        for entry in done.values:
            self._kinds[entry] = self._kind_of(entry)
        own = [entry for entry in done.values if self._kinds[entry] == "layer"]
        self._ids = dict(zip(own, _ids(own, model), strict=True))
        # A group is identified by its first entry.
        self._group = {entry: entry for entry in own}
        self._members = {entry: [entry] for entry in own}
        self._needs: dict[fx.Node, set[fx.Node]] = {entry: set() for entry in own}
        self._needed_by: dict[fx.Node, set[fx.Node]] = {e: set() for e in own}
        # Reasons why several entries form one group.
        self._reasons: dict[fx.Node, str] = {}
        for entry in own:
            for writer in self._writers(entry):
                if writer is not entry:
                    self._needs[entry].add(writer)
                    self._needed_by[writer].add(entry)

    def parts(self, shared: Literal["refuse", "merge", "keep"]) -> list[Part]:
        for entry in list(self._group):
            if entry.op != "call_module" and _is_cheap(entry):
                self._fold(entry)
        self._join_views()
        if shared != "keep":
            self._join_sharing(shared)
        parts = {group: self._part(group) for group in self._sorted()}
        places = {group: i for i, group in enumerate(parts)}
        for group, part in parts.items():
            needs = sorted(self._needs[group], key=places.__getitem__)
            part.needs = [parts[other] for other in needs]
        return list(parts.values())

    # ---- kinds ----

    def _kind_of(self, entry: fx.Node) -> _Kind:
        value = self._done.values[entry]
        if entry.op == "placeholder":
            return "data"
        if entry.op == "get_attr":
            return "weight" if isinstance(value, nn.Parameter) else "constant"
        if not tensors_in(value):
            return "constant"
        if entry.op == "call_module":
            return "layer"
        kinds = {self._kinds[use.writer] for use in self._done.uses[entry]}
        kinds -= {"constant"}
        if not kinds:
            return "constant"
        if kinds == {"weight"}:
            return "weight"
        return "data" if kinds == {"data"} and _is_cheap(entry) else "layer"

    # ---- groups ----

    def _writers(self, entry: fx.Node) -> list[fx.Node]:
        """Layers whose values an entry uses, also through recomputed operations."""
        return [use.writer for use in self._extent([entry])[1] if self._is_own(use)]

    def _is_own(self, use: Use) -> bool:
        return self._kinds[use.writer] == "layer"

    def _fold(self, entry: fx.Node) -> None:
        makers = sorted(self._writers(entry), key=self._order.__getitem__)
        for maker in reversed(makers):
            some = {self._group[maker], self._group[entry]}
            if self._with_what_is_between(some) == some:
                self._join(some)
                return

    def _join_views(self) -> None:
        """Joins an entry that changes a part of a value through a view with that
        value.
        """
        for use in [*itertools.chain(*self._done.uses.values()), *self._done.outputs]:
            if use.writer is use.value or self._kinds[use.value] != "layer":
                continue
            if all(use.value is not u.value for u in self._done.uses[use.writer]):
                some = {self._group[use.value], self._group[use.writer]}
                self._join(self._with_what_is_between(some))

    def _with_what_is_between(self, some: set[fx.Node]) -> set[fx.Node]:
        before = _reach(some, self._needs)
        return some | (before & _reach(some, self._needed_by))

    def _join(self, some: set[fx.Node]) -> fx.Node:
        """Joins several groups into one. Requires: no other group lies between them."""
        first, *others = sorted(some, key=self._order.__getitem__)
        for other in others:
            for entry in self._members[other]:
                self._group[entry] = first
            self._members[first] += self._members.pop(other)
            for table, back in (
                (self._needs, self._needed_by),
                (self._needed_by, self._needs),
            ):
                for neighbour in table.pop(other):
                    back[neighbour].discard(other)
                    if neighbour is not first:
                        back[neighbour].add(first)
                        table[first].add(neighbour)
            self._needs[first].discard(first)
        self._members[first].sort(key=self._order.__getitem__)
        return first

    def _join_sharing(self, shared: Literal["refuse", "merge"]) -> None:
        while sharing := self._sharing():
            parameter, groups = sharing
            names = [
                name
                for name, other in self._model.named_parameters(remove_duplicate=False)
                if other is parameter
            ]
            also = f" (also {_quoted(names[1:])})" if names[1:] else ""
            named = f'"{names[0]}"{also}' if names else "a parameter"
            ids = [self._title(group) for group in groups]
            if shared == "refuse":
                raise ConfigError(
                    f"layers {_quoted(ids)} share the parameter {named}: it would have "
                    "to be on one machine. shared='merge' takes them and all that is "
                    "between them for one layer"
                )
            some = self._with_what_is_between(set(groups))
            first = self._join(some)
            self._reasons[first] = f"{_quoted(ids)} share {named}"

    def _sharing(self) -> tuple[nn.Parameter, list[fx.Node]] | None:
        """A parameter that several groups use, and these groups; None if there is
        none.
        """
        users: dict[nn.Parameter, list[fx.Node]] = {}
        for group in self._sorted():
            for parameter in self._parameters(group):
                users.setdefault(parameter, []).append(group)
        return next(
            ((p, groups) for p, groups in users.items() if len(groups) > 1), None
        )

    def _sorted(self) -> list[fx.Node]:
        """Groups, each after the groups that it needs, otherwise in the order of the
        model.
        """
        waits = {group: len(needs) for group, needs in self._needs.items()}
        free = [(self._order[g], g) for g, count in waits.items() if count == 0]
        heapq.heapify(free)
        ordered = []
        while free:
            group = heapq.heappop(free)[1]
            ordered.append(group)
            for other in self._needed_by[group]:
                waits[other] -= 1
                if waits[other] == 0:
                    heapq.heappush(free, (self._order[other], other))
        return ordered

    # ---- parts ----

    def _extent(
        self, entries: list[fx.Node]
    ) -> tuple[list[fx.Node], list[Use], list[fx.Node]]:
        """Entries of a group with recomputed ones, the uses of its values, and its
        inputs.
        """
        own = set(entries)
        taken: dict[Use, None] = {}
        inputs: dict[fx.Node, None] = {}
        open_uses = [use for entry in entries for use in self._done.uses[entry]]
        while open_uses:
            use = open_uses.pop()
            if use.writer in own and use.value in own:
                continue
            if self._is_own(use):
                if use.writer not in own:
                    taken[use] = None
                elif self._kinds[use.value] == "layer":
                    # The value was made elsewhere and changed here; another use is the
                    # input.
                    continue
                else:
                    open_uses += self._anew(use.value, own, inputs)
                continue
            for entry in {use.value, use.writer}:
                open_uses += self._anew(entry, own, inputs)
        ordered = sorted(own, key=self._order.__getitem__)
        return ordered, list(taken), list(inputs)

    def _anew(
        self, entry: fx.Node, own: set[fx.Node], inputs: dict[fx.Node, None]
    ) -> list[Use]:
        if entry in own:
            return []
        if entry.op == "placeholder":
            inputs[entry] = None
            return []
        own.add(entry)
        return self._done.uses[entry]

    def _parameters(self, group: fx.Node) -> list[nn.Parameter]:
        found: dict[nn.Parameter, None] = {}
        for entry in self._extent(self._members[group])[0]:
            if entry.op == "call_module":
                found |= dict.fromkeys(self._get(entry).parameters())
            elif entry.op == "get_attr" and isinstance(
                self._done.values[entry], nn.Parameter
            ):
                found[self._done.values[entry]] = None
        return list(found)

    def _part(self, group: fx.Node) -> Part:
        outputs = self._leaving(group)
        passed_on = [value for value in outputs if self._kinds[value] != "layer"]
        entries, taken, inputs = self._extent([*self._members[group], *passed_on])
        come_in = dict.fromkeys([*inputs, *(use.value for use in taken)])
        part = Part(self._title(group), self._description(group))
        part.entries = [entry for entry in entries if entry not in come_in]
        part.inputs = sorted(come_in, key=self._order.__getitem__)
        part.outputs = outputs
        part.parameters = self._parameters(group)
        part.activation_bytes = _distinct_bytes(
            tensor for value in part.outputs for tensor in self._tensors(value)
        )
        return part

    def _tensors(self, value: fx.Node) -> list[torch.Tensor]:
        return tensors_in(self._done.values[value])

    def _leaving(self, group: fx.Node) -> list[fx.Node]:
        leaving: dict[fx.Node, None] = {}
        uses = list(self._done.outputs)
        for other in self._needed_by[group]:
            uses += self._extent(self._members[other])[1]
        for use in uses:
            if self._is_own(use) and self._group[use.writer] is group:
                leaving[use.value] = None
        return sorted(leaving, key=self._order.__getitem__)

    # ---- names ----

    def _title(self, group: fx.Node) -> str:
        members = self._members[group]
        calls = [entry for entry in members if entry.op == "call_module"]
        if group in self._reasons and len(calls) > 1:
            return f"{self._ids[calls[0]]}..{self._ids[calls[-1]]}"
        return self._ids[calls[0] if calls else members[0]]

    def _description(self, group: fx.Node) -> str:
        told = []
        for entry in self._members[group]:
            if entry.op == "call_module":
                told.append(_described(self._get(entry)))
            elif (name := _name_of(entry)) not in ("getitem", "getattr"):
                told.append(name)
        text = ", ".join(told)
        if reason := self._reasons.get(group):
            text = f"one layer, since {reason}: {text}"
        # The partitioner does not treat descriptions with these beginnings as layers.
        return f"a {text}" if text.startswith(("Input", "__getitem__")) else text


def _reach(some: Iterable[fx.Node], table: dict[fx.Node, set[fx.Node]]) -> set[fx.Node]:
    """All entries that can be reached in one step or more."""
    found: set[fx.Node] = set()
    ahead = list(some)
    while ahead:
        for entry in table[ahead.pop()]:
            if entry not in found:
                found.add(entry)
                ahead.append(entry)
    return found


def _is_cheap(entry: fx.Node) -> bool:
    target: Any = entry.target
    if isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags:
        return True
    return _name_of(entry) in _CHEAP


def _name_of(entry: fx.Node) -> str:
    """Name of the operation of an entry."""
    target: Any = entry.target
    if entry.op == "call_module":
        return str(target)
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket.__name__
    name = target if isinstance(target, str) else getattr(target, "__name__", "call")
    return name.strip("_")


def _ids(entries: list[fx.Node], model: nn.Module) -> list[str]:
    """Unique ids: module paths, or the place of an operation and its name."""
    counts: Counter[str] = Counter()
    ids = []
    for entry in entries:
        path = entry.meta.get("path", "")
        if entry.op == "call_module":
            name = str(entry.target) or type(model).__name__
        else:
            name = f"{path}.{_name_of(entry)}" if path else _name_of(entry)
        counts[name] += 1
        ids.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return ids


def _described(module: nn.Module) -> str:
    is_whole = next(module.children(), None) is not None
    inside = "..." if is_whole else " ".join(module.extra_repr().split())
    return f"{type(module).__name__}({inside})"


def _quoted(names: list[str]) -> str:
    most = 6
    told = ", ".join(f'"{name}"' for name in names[:most])
    return told + (f" and {len(names) - most} more" if len(names) > most else "")


def _distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Total bytes; tensors with the same memory count once."""
    sizes = {
        (t.data_ptr(), t.numel(), t.dtype): t.numel() * t.element_size()
        for t in tensors
    }
    return sum(sizes.values())
