# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Graphs of the data flow between layers of a model, by two tracing methods.

Both methods give a graph of calls of layers and of the operations between them. The
inside of a layer is never traced. So a layer may contain any code, and is timed as it
is.

Note [stand-ins for layers]
`torch.export` would trace the code inside a layer as well, and would lose everything in
it that is no torch operation, such as a custom backward. So during tracing the
`forward` of each layer is replaced by one custom operation, `aikido_profile::call`. It
makes tensors like the tensors that the layer returned in an earlier run. This operation
is never executed.
"""

import contextlib
import io
import json
import linecache
import operator
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind
from torch.fx.node import base_types, map_arg
from torch.utils import _pytree as pytree

from aikido_torch.profile._recorder import (
    Call,
    Inputs,
    IsLayer,
    Recording,
    Structure,
    layers_of,
    record,
    replaced_forwards,
    structure_of,
)

__all__ = [
    "NotTracedError",
    "Trace",
    "is_sequential",
    "reason_of",
    "trace_chain",
    "trace_export",
]


class NotTracedError(Exception):
    """The method gives no graph of the model; the text says why."""


@dataclass(frozen=True)
class Trace:
    """A graph of calls of layers and of operations between them.

    The `meta` of an entry has "path", the module whose code it is from, and "no_grad"
    if no gradient is computed for it.
    """

    way: str  # "chain" or "export"
    graph: fx.Graph
    inputs: list[Any]  # values of the placeholders, in order
    recording: Recording
    # Values of entries that are no attribute of the model.
    constants: dict[str, Any] = field(default_factory=dict)


def is_sequential(module: nn.Module) -> bool:
    """True if its children run in order and no other code runs."""
    return (
        isinstance(module, nn.Sequential)
        and type(module).forward is nn.Sequential.forward
    )


# ---- layers in a row ----


def trace_chain(model: nn.Module, inputs: Inputs, is_layer: IsLayer) -> Trace:
    """Treats the children of the model as layers that each feed the next.

    Nested Sequentials are divided. Each other child is one layer, with all its
    submodules.

    Raises:
        NotTracedError: a child does not feed the next; the text names the first one.
    """
    parts = _parts(model, is_layer)
    recording = record(model, parts, inputs, keep_tensors=True)
    if not recording.calls:
        raise NotTracedError("it calls none of its children")
    graph = fx.Graph()
    _, before = structure_of((inputs.args, inputs.kwargs))
    entries: list[fx.Node] = []
    for i in range(len(before)):
        entries.append(graph.placeholder(f"input_{i}"))
    named = "the model was given"
    for call in recording.calls:
        given = [
            _match(graph, tensor, before, entries) for tensor in call.argument_tensors
        ]
        if None in given:
            raise NotTracedError(
                f'child "{call.path}" takes something else than what {named}'
            )
        result = _add_call(graph, call, given)
        before, entries = call.result_tensors, _taken_apart(graph, call.result, result)
        named = f'child "{call.path}" returned'
    _, returned = structure_of(recording.output)
    outputs = [_match(graph, tensor, before, entries) for tensor in returned]
    if None in outputs:
        raise NotTracedError(f"the model returns something else than what {named}")
    graph.output(tuple(outputs))
    _, given_tensors = structure_of((inputs.args, inputs.kwargs))
    return Trace("chain", graph, list(given_tensors), recording)


def _parts(model: nn.Module, is_layer: IsLayer) -> dict[str, nn.Module]:
    if next(model.children(), None) is None or is_layer("", model):
        return {"": model}

    def is_part(path: str, module: nn.Module) -> bool:
        held = isinstance(module, nn.ModuleList | nn.ModuleDict)
        return is_layer(path, module) or not (held or is_sequential(module))

    return layers_of(model, is_part)


def _match(
    graph: fx.Graph,
    tensor: torch.Tensor,
    among: list[torch.Tensor],
    entries: list[fx.Node],
) -> fx.Node | None:
    """The entry whose value the tensor is, perhaps with another shape; None if none."""
    for other, entry in zip(among, entries, strict=True):
        if other.data_ptr() != tensor.data_ptr() or other.dtype != tensor.dtype:
            continue
        if other.shape == tensor.shape and other.stride() == tensor.stride():
            return entry
        same_memory = other.is_contiguous() and tensor.is_contiguous()
        if same_memory and other.numel() == tensor.numel():
            return graph.call_method("reshape", (entry, tuple(tensor.shape)))
    return None


# ---- torch.export ----

_operators: Any = torch.library  # torch.library has no type annotations
_library = _operators.Library("aikido_profile", "FRAGMENT")
_library.define("call(Tensor[] inputs, str call) -> Tensor[]")


def _stand_in(inputs: list[torch.Tensor], call: str) -> list[torch.Tensor]:
    return [
        torch.empty_strided(
            kind["shape"],
            kind["stride"],
            dtype=getattr(torch, kind["dtype"]),
            device=kind["device"],
        )
        for kind in json.loads(call)["result"]
    ]


_operators.register_fake("aikido_profile::call", _stand_in, lib=_library)


def trace_export(model: nn.Module, inputs: Inputs, is_layer: IsLayer) -> Trace:
    """Traces by `torch.export`, with stand-ins for the layers (see the note above).

    Raises:
        NotTracedError: the graph has parts that cannot be run one by one.
    """
    layers = layers_of(model, is_layer)
    recording = record(model, layers, inputs)
    numbers: Counter[str] = Counter()

    def make(path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def stands_in(*args: Any, **kwargs: Any) -> Any:
            call = recording.of(path, numbers[path])
            numbers[path] += 1
            if call is None:
                raise NotTracedError(
                    f'layer "{path}" is called once more than in a run before'
                )
            _, given = structure_of((args, kwargs))
            made = torch.ops.aikido_profile.call(given, _described(call))
            return call.result.filled(made)

        return stands_in

    with replaced_forwards(layers, make), _quiet():
        program = torch.export.export(model, inputs.args, inputs.kwargs, strict=False)
    return _ExportReader(program, recording).read(inputs)


def _described(call: Call) -> str:
    kinds = [
        {
            "shape": kind.shape,
            "stride": kind.stride,
            "dtype": str(kind.dtype).removeprefix("torch."),
            "device": str(kind.device),
        }
        for kind in call.result_kinds
    ]
    return json.dumps({"path": call.path, "number": call.number, "result": kinds})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context that hides torch's messages; the caller tries another method or
    reports.
    """
    with contextlib.redirect_stderr(io.StringIO()):
        yield


class _ExportReader:
    """Conversion of a graph with stand-ins into a graph with calls of modules."""

    def __init__(
        self, program: torch.export.ExportedProgram, recording: Recording
    ) -> None:
        self._program = program
        self._recording = recording
        self._graph = fx.Graph()
        self._constants: dict[str, Any] = {}

    def read(self, inputs: Inputs) -> Trace:
        made: dict[fx.Node, Any] = {}
        signature = self._program.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        for entry in self._program.graph.nodes:
            if entry.op == "placeholder":
                made[entry] = self._read_placeholder(entry, specs[entry.name])
        module = self._program.graph_module
        returned = self._read_body(self._program.graph, module, made, no_grad=False)
        self._graph.output(returned)
        for entry in reversed(list(self._graph.nodes)):
            is_access = entry.target in (operator.getitem, getattr)
            if is_access and not entry.users:
                self._graph.erase_node(entry)
        flat = pytree.tree_leaves((inputs.args, inputs.kwargs))
        return Trace("export", self._graph, flat, self._recording, self._constants)

    def _read_placeholder(self, entry: fx.Node, spec: Any) -> fx.Node:
        if spec.kind is InputKind.USER_INPUT:
            return self._graph.placeholder(entry.name)
        if spec.kind in (InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ):
            self._constants[spec.target] = self._program.constants[spec.target]
        elif spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER):
            raise NotTracedError(f'"{entry.name}" is a {spec.kind.name.lower()}')
        return self._graph.create_node("get_attr", spec.target)

    def _read_body(
        self,
        from_graph: fx.Graph,
        owner: nn.Module,
        made: dict[fx.Node, Any],
        *,
        no_grad: bool,
    ) -> Any:
        """Copies a graph whose placeholders exist already; returns its output.

        An entry may correspond to a list of new entries.
        """
        for entry in from_graph.nodes:
            if entry.op == "output":
                return map_arg(entry.args[0], made.__getitem__)
            if entry.op == "placeholder":
                continue
            if entry.target is operator.getitem and isinstance(
                made[entry.args[0]], list | tuple
            ):
                made[entry] = made[entry.args[0]][entry.args[1]]
                continue
            last = next(iter(reversed(self._graph.nodes)), None)
            made[entry] = self._read_entry(entry, owner, made, no_grad=no_grad)
            for new in _added_after(self._graph, last):
                new.meta.setdefault("no_grad", no_grad)
                new.meta.setdefault("path", _path_of(entry))
        raise NotTracedError("a graph inside of it returns nothing")

    def _read_entry(
        self,
        entry: fx.Node,
        owner: nn.Module,
        made: dict[fx.Node, Any],
        *,
        no_grad: bool,
    ) -> Any:
        if entry.op == "get_attr":
            assert isinstance(entry.target, str)
            value = operator.attrgetter(entry.target)(owner)
            if isinstance(value, fx.GraphModule):
                return value  # the entry that calls it uses it
            self._constants[entry.target] = value
            return self._graph.create_node("get_attr", entry.target)
        args: Any = map_arg(entry.args, made.__getitem__)
        if entry.target is torch.ops.aikido_profile.call.default:
            told = json.loads(str(args[1]))
            call = self._recording.of(told["path"], told["number"])
            assert call is not None
            result = _add_call(self._graph, call, args[0])
            return _taken_apart(self._graph, call.result, result)
        if entry.target is torch.ops.higher_order.wrap_with_set_grad_enabled:
            enabled, inner, *given = args
            made |= zip(inner.graph.find_nodes(op="placeholder"), given, strict=True)
            return self._read_body(inner.graph, inner, made, no_grad=not enabled)
        if any(isinstance(arg, fx.GraphModule) for arg in args):
            raise NotTracedError(
                f"a block of it is run by {_name(entry.target)}, which is no operation "
                "of its own, such as one of torch.autocast"
            )
        kwargs = map_arg(entry.kwargs, made.__getitem__)
        return self._graph.create_node(entry.op, entry.target, args, kwargs)


def _added_after(graph: fx.Graph, last: fx.Node | None) -> Iterator[fx.Node]:
    for entry in reversed(graph.nodes):
        if entry is last:
            return
        yield entry


def _path_of(entry: fx.Node) -> str:
    stack = list((entry.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0].split("@")[0] if stack else ""


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", target))


# ---- shared by the methods ----


def _add_call(graph: fx.Graph, call: Call, tensors: Any) -> fx.Node:
    for other in call.arguments.others():
        if not isinstance(other, (*base_types, slice, range)):
            raise NotTracedError(
                f'layer "{call.path}" is called with a {type(other).__name__}'
            )
    args, kwargs = call.arguments.filled(tensors)
    return graph.create_node("call_module", call.path, args, kwargs)


def _taken_apart(
    graph: fx.Graph, structure: Structure, entry: fx.Node
) -> list[fx.Node]:
    """Entries for the tensors in the result of a layer."""
    found = []
    for path in structure.paths:
        at = entry
        for key in path:
            if isinstance(key, pytree.GetAttrKey):
                at = graph.call_function(getattr, (at, key.name))
            else:
                place: Any = key  # a key of a mapping or an index of a sequence
                named = isinstance(key, pytree.MappingKey)
                index = place.key if named else place.idx
                at = graph.call_function(operator.getitem, (at, index))
        found.append(at)
    return found


def reason_of(error: Exception, model: nn.Module) -> str:
    """The reason why a method failed, with its place in the code of the model."""
    if isinstance(error, NotTracedError):
        return str(error)
    text = str(error)
    what = f"{type(error).__name__}: {(text.strip().splitlines() or [''])[0]}"
    if "guard on data-dependent" in text:
        what = "what it does next depends on values of tensors"
    place = _place_of(error, model)
    return f"{what[:200]}{place}"


def _place_of(error: BaseException, model: nn.Module) -> str:
    """The place in the code of the model, or of one of its layers, where it
    happened.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    torch_folder = str(Path(torch.__file__).parent)
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file, code = frame.f_code.co_filename, frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if id(first) not in paths or file.startswith((torch_folder, "<")):
            continue
        path = paths[id(first)]
        named = f'layer "{path}"' if path else "the model"
        text = linecache.getline(file, line).strip()
        return f", in {named}, {Path(file).name}:{line}: `{text}`"
    return ""
