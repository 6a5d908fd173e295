# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One run of a traced model that keeps all values and the last writer of each."""

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from aikido_torch.profile._recorder import Recording, TensorKind, structure_of
from aikido_torch.profile._trace import NotTracedError, Trace

__all__ = ["Evaluation", "Use", "evaluate", "getter_of", "tensors_in"]


@dataclass(frozen=True)
class Use:
    """The use of another entry's value by an entry.

    `writer` is the entry that wrote the value last. It differs from `value` if an
    operation changed the value in place, as ReLU(inplace=True) does with its input.
    """

    value: fx.Node
    writer: fx.Node


@dataclass
class Evaluation:
    """The value of each entry, detached from autograd, and the uses of each entry.

    Tensors that needed a gradient are marked with requires_grad. A tensor that was
    changed in place has its last value, which has equal size and takes equal time.
    """

    values: dict[fx.Node, Any] = field(default_factory=dict)
    uses: dict[fx.Node, list[Use]] = field(default_factory=dict)
    outputs: list[Use] = field(default_factory=list)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested containers, in order."""
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def getter_of(trace: Trace, model: nn.Module) -> Callable[[fx.Node], Any]:
    """A function that returns the module or value that an entry of the graph names."""

    def get(entry: fx.Node) -> Any:
        assert isinstance(entry.target, str)
        if entry.op == "call_module":
            return model.get_submodule(entry.target)
        if entry.target in trace.constants:
            return trace.constants[entry.target]
        return operator.attrgetter(entry.target)(model)

    return get


def evaluate(trace: Trace, model: nn.Module) -> Evaluation:
    """Runs the graph once.

    Raises:
        NotTracedError: layers return other values than in a run of the model, so the
            graph does not describe the model completely.
    """
    done = Evaluation()
    get = getter_of(trace, model)
    inputs = iter(trace.inputs)
    writers: dict[fx.Node, fx.Node] = {}
    made_in: dict[int, list[fx.Node]] = {}  # entries by the memory of their values
    calls: Counter[str] = Counter()
    for entry in trace.graph.nodes:
        done.uses[entry] = used = [
            Use(value, writers.get(value, value))
            for value in entry.all_input_nodes
            if tensors_in(done.values[value])
        ]
        if entry.op == "output":
            done.outputs = used
            break
        taken = [t for use in used for t in tensors_in(done.values[use.value])]
        versions = [tensor._version for tensor in taken]
        value = _run(entry, done.values, get, inputs)
        done.values[entry] = value
        if entry.op == "call_module":
            _check_call(str(entry.target), calls, trace.recording, value)
        for tensor, version in zip(taken, versions, strict=True):
            if tensor._version != version:
                for changed in made_in.get(_memory(tensor), ()):
                    writers[changed] = entry
        for tensor in tensors_in(value):
            made_in.setdefault(_memory(tensor), []).append(entry)
    if missed := trace.recording.counts() - calls:
        path, count = next(iter(missed.items()))
        raise NotTracedError(f'{count} calls of layer "{path}" are not in the graph')
    done.values = {entry: _without_graph(v) for entry, v in done.values.items()}
    return done


def _run(
    entry: fx.Node,
    values: dict[fx.Node, Any],
    get: Callable[[fx.Node], Any],
    inputs: Any,
) -> Any:
    if entry.op == "placeholder":
        # Clones, because the caller's inputs must not change.
        return pytree.tree_map_only(torch.Tensor, torch.clone, next(inputs))
    if entry.op == "get_attr":
        return get(entry)
    args = map_arg(entry.args, values.__getitem__)
    kwargs = map_arg(entry.kwargs, values.__getitem__)
    with torch.set_grad_enabled(not entry.meta.get("no_grad", False)):
        if entry.op == "call_module":
            return get(entry)(*args, **kwargs)
        if entry.op == "call_method":
            return getattr(args[0], str(entry.target))(*args[1:], **kwargs)
        assert callable(entry.target)
        return entry.target(*args, **kwargs)


def _check_call(
    path: str, calls: Counter[str], recording: Recording, value: Any
) -> None:
    call = recording.of(path, calls[path])
    calls[path] += 1
    if call is None:
        raise NotTracedError(f'layer "{path}" is called more often than in the model')
    kinds = [TensorKind.of(tensor) for tensor in structure_of(value)[1]]
    for kind, before in zip(kinds, call.result_kinds, strict=True):
        if (kind.shape, kind.dtype) != (before.shape, before.dtype):
            raise NotTracedError(
                f'layer "{path}" returns {list(kind.shape)} of {kind.dtype}, in the '
                f"model {list(before.shape)} of {before.dtype}"
            )
        if kind.needs_gradient != before.needs_gradient:
            raise NotTracedError(
                f'gradients of what layer "{path}" returns are needed in '
                f"{'the graph' if kind.needs_gradient else 'the model'} only"
            )


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _without_graph(value: Any) -> Any:
    def bare(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, nn.Parameter):
            return tensor
        return tensor.detach().requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, bare, value)
