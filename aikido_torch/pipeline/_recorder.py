# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which modules of a model are layers, and what each call of one takes and returns."""

import contextlib
import fnmatch
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from aikido_torch.errors import ConfigError

__all__ = [
    "Call",
    "Inputs",
    "Recording",
    "Structure",
    "TensorKind",
    "layer_rule",
    "layers_of",
    "record",
    "replaced_forwards",
    "structure_of",
]

IsLayer = Callable[[str, nn.Module], bool]

# Modules of torch.nn that only hold others; all else there is one layer, as is every
# module that holds none.
_CONTAINERS = (
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.ParameterList,
    nn.ParameterDict,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
)


@dataclass(frozen=True)
class Inputs:
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class TensorKind:
    """What a stand-in for a tensor has to have, and whether gradients go through it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    needs_gradient: bool

    @staticmethod
    def of(tensor: torch.Tensor) -> "TensorKind":
        return TensorKind(
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
        )


class _Gap:
    """Where a tensor was taken out of a structure."""


_GAP = _Gap()


@dataclass(frozen=True)
class Structure:
    """Containers in containers, and what is in them beside tensors."""

    spec: pytree.TreeSpec
    leaves: list[Any]
    paths: list[pytree.KeyPath]  # of the tensors

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The same with these in place of the tensors."""
        given = iter(tensors)
        return pytree.tree_unflatten(
            [next(given) if leaf is _GAP else leaf for leaf in self.leaves], self.spec
        )

    def others(self) -> list[Any]:
        """What is in it beside tensors and None."""
        return [leaf for leaf in self.leaves if leaf is not _GAP and leaf is not None]


def structure_of(value: Any) -> tuple[Structure, list[torch.Tensor]]:
    """Takes the tensors out."""
    keyed, spec = pytree.tree_flatten_with_path(value)
    tensors = [leaf for _, leaf in keyed if isinstance(leaf, torch.Tensor)]
    leaves = [_GAP if isinstance(x, torch.Tensor) else x for _, x in keyed]
    paths = [path for path, leaf in keyed if isinstance(leaf, torch.Tensor)]
    return Structure(spec, leaves, paths), tensors


@dataclass(frozen=True)
class Call:
    """One call of a layer."""

    path: str
    number: int  # 0 for the first call of this module
    arguments: Structure  # (args, kwargs)
    result: Structure
    result_kinds: list[TensorKind]
    # Only where they were asked for: without the graph that made them.
    argument_tensors: list[torch.Tensor] = field(default_factory=list)
    result_tensors: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """One forward pass: calls of layers in their order, and what the model returned."""

    calls: list[Call]
    output: Any

    def of(self, path: str, number: int) -> Call | None:
        return next(
            (c for c in self.calls if c.path == path and c.number == number), None
        )

    def counts(self) -> Counter[str]:
        """How often each layer was called."""
        return Counter(call.path for call in self.calls)


def layer_rule(whole: Sequence[type[nn.Module] | str]) -> IsLayer:
    """The rule by which a module is one layer, whatever is in it.

    Args:
        whole: besides those that are anyway: classes, and patterns of module paths.
    """
    kinds = tuple(entry for entry in whole if isinstance(entry, type))
    patterns = [entry for entry in whole if isinstance(entry, str)]

    def is_layer(path: str, module: nn.Module) -> bool:
        if next(module.children(), None) is None:
            return True
        if isinstance(module, kinds):
            return True
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            return True
        of_torch = type(module).__module__.startswith("torch.nn.")
        return of_torch and not isinstance(module, _CONTAINERS)

    return is_layer


def layers_of(model: nn.Module, is_layer: IsLayer) -> dict[str, nn.Module]:
    """Layers by path: no layer is inside of another, and the model itself is none."""
    found: dict[str, nn.Module] = {}

    def look(path: str, module: nn.Module) -> None:
        for name, child in module.named_children():
            inner = f"{path}.{name}" if path else name
            if not is_layer(inner, child):
                look(inner, child)
            elif all(child is not other for other in found.values()):
                found[inner] = child

    look("", model)
    return found


@contextlib.contextmanager
def replaced_forwards(
    layers: dict[str, nn.Module],
    make: Callable[[str, Callable[..., Any]], Callable[..., Any]],
) -> Iterator[None]:
    """While inside, `forward` of each layer is what `make(path, forward)` returned."""
    saved = [(module, vars(module).get("forward")) for module in layers.values()]
    try:
        for path, module in layers.items():
            vars(module)["forward"] = make(path, module.forward)
        yield
    finally:
        for module, forward in saved:
            vars(module).pop("forward", None)
            if forward is not None:
                vars(module)["forward"] = forward


def record(
    model: nn.Module,
    layers: dict[str, nn.Module],
    inputs: Inputs,
    *,
    keep_tensors: bool = False,
) -> Recording:
    """Runs the model once and writes down what its layers take and return.

    Raises:
        ConfigError: a layer returns something that is neither tensor nor container.
    """
    calls: list[Call] = []
    numbers: Counter[str] = Counter()

    def make(path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            arguments, given = structure_of((args, kwargs))
            returned = forward(*args, **kwargs)
            result, tensors = structure_of(returned)
            _refuse_others(path, layers[path], result)
            call = Call(
                path,
                numbers[path],
                arguments,
                result,
                [TensorKind.of(tensor) for tensor in tensors],
                [tensor.detach() for tensor in given] if keep_tensors else [],
                [tensor.detach() for tensor in tensors] if keep_tensors else [],
            )
            numbers[path] += 1
            calls.append(call)
            return returned

        return recorded

    with replaced_forwards(layers, make):
        output = model(*inputs.args, **inputs.kwargs)
    return Recording(calls, output)


def _refuse_others(path: str, module: nn.Module, result: Structure) -> None:
    if others := result.others():
        raise ConfigError(
            f'layer "{path}" ({type(module).__name__}) returns a '
            f"{type(others[0]).__name__}; layers are profiled that return tensors, or "
            "tuples, lists and dicts of them"
        )
