# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Layers of a model, and the arguments and results of their calls."""

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

# Modules of torch.nn that only contain others. All other modules of torch.nn are one
# layer, as is every module without submodules.
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
    """Arguments of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class TensorKind:
    """Properties of a tensor that a stand-in must have, and whether it needs a
    gradient.
    """

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
    """Placeholder for a tensor that was taken out of a structure."""


_GAP = _Gap()


@dataclass(frozen=True)
class Structure:
    """Nested containers, and their leaves except tensors."""

    spec: pytree.TreeSpec
    leaves: list[Any]
    paths: list[pytree.KeyPath]  # paths of the tensors

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The same containers with these tensors."""
        given = iter(tensors)
        return pytree.tree_unflatten(
            [next(given) if leaf is _GAP else leaf for leaf in self.leaves], self.spec
        )

    def others(self) -> list[Any]:
        """Leaves other than tensors and None."""
        return [leaf for leaf in self.leaves if leaf is not _GAP and leaf is not None]


def structure_of(value: Any) -> tuple[Structure, list[torch.Tensor]]:
    """Separates a value into its structure and its tensors."""
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
    # Only if requested; detached from the autograd graph.
    argument_tensors: list[torch.Tensor] = field(default_factory=list)
    result_tensors: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """One forward pass: calls of layers in order, and the output of the model."""

    calls: list[Call]
    output: Any

    def of(self, path: str, number: int) -> Call | None:
        return next(
            (c for c in self.calls if c.path == path and c.number == number), None
        )

    def counts(self) -> Counter[str]:
        """Number of calls of each layer."""
        return Counter(call.path for call in self.calls)


def layer_rule(whole: Sequence[type[nn.Module] | str]) -> IsLayer:
    """The rule that decides whether a module is one layer with all its submodules.

    Args:
        whole: further modules that are one layer: classes, and patterns of module
            paths.
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
    """Layers by path. No layer is inside another, and the model itself is not
    included.
    """
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
    """Context in which `forward` of each layer is the result of `make(path,
    forward)`.
    """
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
    """Runs the model once and records arguments and results of its layers.

    Args:
        model: the model.
        layers: layers by path.
        inputs: arguments of the model.
        keep_tensors: True also keeps the tensors.

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
