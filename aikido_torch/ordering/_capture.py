# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Graph of a training iteration of a model, from the measured times of its layers."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.profile._profiler import (
    Measurement,
    measure_calls,
    measure_model,
)

__all__ = [
    "Captured",
    "CapturedLayer",
    "capture_chain",
    "capture_graph",
    "captured_of",
]

Sample = torch.Tensor | Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CapturedLayer:
    """One layer of a model.

    Attributes:
        name: The path of its module, or for an operation outside modules its place and
            its kind.
        forward_s: Time of its forward pass.
        backward_s: Time of its backward pass.
        needs: Names of the layers whose outputs are its inputs.
        parameters: Names of the trainable parameters that it uses.
    """

    name: str
    forward_s: float
    backward_s: float
    needs: tuple[str, ...]
    parameters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The layers of a model in the order of its forward pass.

    Attributes:
        layers: The layers.
        bytes: Sizes of the trainable parameters that at least one layer uses, by name,
            in the order of their first use. A parameter of several layers is there
            once.
        left_out: Names of the other parameters, which are frozen or unused and have no
            transfer.
        trace: How the layers were found: "export", "chain" or "calls".
    """

    layers: tuple[CapturedLayer, ...]
    bytes: dict[str, int]
    left_out: tuple[str, ...]
    trace: str

    def forward_graph(self, link: _C.LinkCost) -> _C.OpGraph:
        """The graph of a forward pass that waits for its parameters from a server.

        This is the setting of the TicTac paper (arXiv 1803.03288).
        """
        ops = [_transfer(name, size, link) for name, size in self.bytes.items()]
        ops += [
            _C.Op.compute(_forward(x.name), time_s=x.forward_s) for x in self.layers
        ]
        return _C.OpGraph(ops, self._forward_edges())

    def iteration_graph(self, link: _C.LinkCost) -> _C.OpGraph:
        """The graph of a backward pass and the forward pass of the next iteration.

        The gradient of a parameter is transferred after the backward passes of all
        layers that share it. Each of these layers needs the transfer in the next
        forward pass, which begins after the whole backward pass.
        """
        ops = [
            _C.Op.compute(_backward(x.name), time_s=x.backward_s)
            for x in reversed(self.layers)
        ]
        ops += [_transfer(name, size, link) for name, size in self.bytes.items()]
        ops += [
            _C.Op.compute(_forward(x.name), time_s=x.forward_s) for x in self.layers
        ]
        edges = self._forward_edges()
        for layer in self.layers:
            # Gradients flow against the direction of outputs.
            edges += [(_backward(layer.name), _backward(x)) for x in layer.needs]
            edges += [(_backward(layer.name), name) for name in layer.parameters]
            if not layer.needs:
                edges += [
                    (_backward(x.name), _forward(layer.name))
                    for x in self.layers
                    if not x.needs
                ]
        return _C.OpGraph(ops, edges)

    def _forward_edges(self) -> list[tuple[str, str]]:
        edges = []
        for layer in self.layers:
            edges += [(_forward(x), _forward(layer.name)) for x in layer.needs]
            edges += [(name, _forward(layer.name)) for name in layer.parameters]
        return edges


def _forward(layer: str) -> str:
    return f"forward {layer}"


def _backward(layer: str) -> str:
    return f"backward {layer}"


def _transfer(name: str, size: int, link: _C.LinkCost) -> _C.Op:
    return _C.Op.transfer(name, time_s=link.time_s(size), bytes=size)


def capture_graph(
    model: nn.Module, sample: Sample, *, repeats: int = 10, warm_up: int = 2
) -> Captured:
    """Measures the layers of a model and finds which layer needs the output of which.

    The layers come from `torch.export`, or else from the order of the children, and are
    timed as by `aikido_torch.pipeline.measure_model`. If neither can trace the model,
    for example because control flow depends on data, this function warns and returns
    the result of `capture_chain`.

    Args:
        model: A model on the CPU or on one CUDA device. It is unchanged afterwards.
        sample: Input of the model: a tensor, a sequence of positional arguments or a
            mapping of keyword arguments.
        repeats: The number of measured runs; times are their medians.
        warm_up: The number of runs before the measured ones.

    Raises:
        ConfigError: An argument is invalid, or the model fails with the sample.
    """
    try:
        measured = measure_model(
            model, sample, repeats=repeats, warm_up=warm_up, shared="keep"
        )
    except ConfigError as error:
        captured = capture_chain(model, sample, repeats=repeats, warm_up=warm_up)
        warnings.warn(
            f"its layers are taken for a chain, in the order of their calls: {error}",
            stacklevel=2,
        )
        return captured
    return captured_of(model, measured)


def capture_chain(
    model: nn.Module, sample: Sample, *, repeats: int = 10, warm_up: int = 2
) -> Captured:
    """Measures the layers of a model and treats them as a chain, in the order of calls.

    This works for each model that runs. It does not see operations between layers. The
    parameters of a module that belong to no layer count for the first layer that is
    called in this module.

    Args:
        model: As for `capture_graph`.
        sample: As for `capture_graph`.
        repeats: As for `capture_graph`.
        warm_up: As for `capture_graph`.

    Raises:
        ConfigError: An argument is invalid, or the model fails with the sample.
    """
    measured = measure_calls(model, sample, repeats=repeats, warm_up=warm_up)
    return captured_of(model, measured)


def captured_of(model: nn.Module, measured: Measurement) -> Captured:
    """Converts a measurement of the model by `measure_calls`, or by `measure_model`
    with shared="keep".
    """
    parameters = dict(model.named_parameters())
    needs: dict[str, list[str]] = {}
    for before, after in measured.profile.edges:
        needs.setdefault(after, []).append(before)
    layers = tuple(
        CapturedLayer(
            name=layer.id,
            forward_s=layer.forward_ms / 1e3,
            backward_s=layer.backward_ms / 1e3,
            needs=tuple(needs.get(layer.id, ())),
            parameters=tuple(
                name
                for name in measured.parameters[layer.id]
                if parameters[name].requires_grad
            ),
        )
        for layer in measured.profile.layers
    )
    used = dict.fromkeys(name for layer in layers for name in layer.parameters)
    return Captured(
        layers=layers,
        bytes={n: parameters[n].numel() * parameters[n].element_size() for n in used},
        left_out=tuple(name for name in parameters if name not in used),
        trace=measured.trace,
    )
