# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Recorder of a model's layers in the order of their calls, by hooks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from aikido_torch.errors import ConfigError
from aikido_torch.profile._recorder import Inputs, IsLayer, layers_of

__all__ = ["CalledLayer", "record_calls"]


@dataclass(frozen=True)
class CalledLayer:
    """One call of a layer, with copies of its arguments.

    Attributes:
        id: path of the module, or the model's class for the model itself; with "#2" and
            so on from its second call on.
        module: the layer.
        arguments: copies of the positional and the keyword arguments.
        parameters: parameters of the layer. The first layer called inside a module also
            has the parameters of that module that belong to no layer.
        activation_bytes: bytes of the tensors that it returned.
    """

    id: str
    module: nn.Module
    arguments: tuple[Any, Any]  # args, kwargs
    parameters: Sequence[nn.Parameter]
    activation_bytes: int


def record_calls(
    model: nn.Module, inputs: Inputs, is_layer: IsLayer
) -> list[CalledLayer]:
    """Runs the model once and records its calls of layers in order.

    Parameters without a gradient in this run's backward are excluded.

    Args:
        model: the model.
        inputs: arguments of the model.
        is_layer: decides which modules are layers.

    Raises:
        ConfigError: the model calls no layer.
    """
    layers = layers_of(model, is_layer) or {"": model}
    found: list[tuple[str, str, nn.Module, tuple[Any, Any], int]] = []
    counts: Counter[str] = Counter()
    under_way: list[tuple[Any, Any]] = []

    def hooks_of(path: str) -> tuple[Any, Any]:
        def before(module: nn.Module, args: Any, kwargs: Any) -> None:
            under_way.append(pytree.tree_map_only(torch.Tensor, _copy, (args, kwargs)))

        def after(module: nn.Module, args: Any, kwargs: Any, made: Any) -> None:
            counts[path] += 1
            name = path or type(module).__name__
            called = name if counts[path] == 1 else f"{name}#{counts[path]}"
            tensors = [x for x in pytree.tree_leaves(made) if torch.is_tensor(x)]
            size = sum(t.numel() * t.element_size() for t in tensors)
            found.append((called, path, module, under_way.pop(), size))

        return before, after

    handles = []
    try:
        for path, module in layers.items():
            before, after = hooks_of(path)
            handles += [
                module.register_forward_pre_hook(before, with_kwargs=True),
                module.register_forward_hook(after, with_kwargs=True),
            ]
        output = model(*inputs.args, **inputs.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise ConfigError("the model calls none of its layers")
    used = _used(model, output)
    homes = _homes_of_others(model, layers, [path for _, path, *_ in found])
    return [
        CalledLayer(
            called,
            module,
            arguments,
            [
                p
                for p in [*module.parameters(), *homes.pop(path, [])]
                if any(p is other for other in used)
            ],
            size,
        )
        for called, path, module, arguments, size in found
    ]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _used(model: nn.Module, output: Any) -> list[nn.Parameter]:
    """Parameters that get a gradient, and parameters that are not trained."""
    trained = [p for p in model.parameters() if p.requires_grad]
    roots = [
        x for x in pytree.tree_leaves(output) if torch.is_tensor(x) and x.requires_grad
    ]
    if not roots or not trained:
        return list(model.parameters())
    gradients = torch.autograd.grad(
        roots, trained, [torch.ones_like(x) for x in roots], allow_unused=True
    )
    unused = [p for p, g in zip(trained, gradients, strict=True) if g is None]
    return [p for p in model.parameters() if not any(p is other for other in unused)]


def _homes_of_others(
    model: nn.Module, layers: dict[str, nn.Module], called: Sequence[str]
) -> dict[str, list[nn.Parameter]]:
    """Parameters of modules that are no layers, by the first layer called inside
    them.
    """
    of_layers = {id(p) for layer in layers.values() for p in layer.parameters()}
    homes: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if id(parameter) in of_layers:
            continue
        owner = name.rpartition(".")[0]
        inside = f"{owner}." if owner else ""
        first = next((path for path in called if path.startswith(inside)), called[0])
        homes.setdefault(first, []).append(parameter)
    return homes
