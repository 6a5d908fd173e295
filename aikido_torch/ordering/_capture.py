# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Graphs of iterations of a model: its layers are timed, its parameters transferred."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline import Measurement, measure_calls, measure_model

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
        name: path of its module, or where it is and what it does.
        forward_s, backward_s: what it takes.
        needs: layers whose output it takes.
        parameters: names of those that it uses and training changes.
    """

    name: str
    forward_s: float
    backward_s: float
    needs: tuple[str, ...]
    parameters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Captured:
    """Layers of a model in the order of its forward pass.

    Attributes:
        bytes: of each parameter that some layer uses and training changes, by name, in
            the order of their first use. One that layers share is there once.
        left_out: names of the others, frozen or not used: they have no transfer.
        trace: how the layers were found: "export", "fx", "chain" or "calls".
    """

    layers: tuple[CapturedLayer, ...]
    bytes: dict[str, int]
    left_out: tuple[str, ...]
    trace: str

    def forward_graph(self, link: _C.LinkCost) -> _C.OpGraph:
        """A forward pass for which parameters are received: the setting of TicTac."""
        ops = [_transfer(name, size, link) for name, size in self.bytes.items()]
        ops += [
            _C.Op.compute(_forward(x.name), time_s=x.forward_s) for x in self.layers
        ]
        return _C.OpGraph(ops, self._forward_edges())

    def iteration_graph(self, link: _C.LinkCost) -> _C.OpGraph:
        """A backward pass, and the forward pass of the next iteration.

        A gradient is transferred when all layers that share its parameter have done
        their backward, and each of them needs it in the next forward. That one
        begins when all backwards are done.
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
            # Gradients go back where outputs went.
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
    """Which layer needs the output of which, and what each takes, forward and backward.

    By `torch.export`, else by `torch.fx`; layers are timed as
    `aikido_torch.pipeline.measure_model` does. Where neither works, as with control
    flow that depends on data, it warns once and is `capture_chain`.

    Args:
        model: on the processor or one CUDA device; it is left as it was.
        sample: what it is called with: a tensor, positional or keyword arguments.
        repeats: runs of which the times are medians.
        warm_up: runs before them.

    Raises:
        ConfigError: an argument is wrong, or the model fails with the sample.
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
    """The layers in the order in which a run calls them, each after the one before.

    It works for each model that runs. Operations between layers are not seen;
    parameters that no layer has count for the first layer called in their module.

    Args:
        model, sample, repeats, warm_up: as of `capture_graph`.

    Raises:
        ConfigError: an argument is wrong, or the model fails with the sample.
    """
    measured = measure_calls(model, sample, repeats=repeats, warm_up=warm_up)
    return captured_of(model, measured)


def captured_of(model: nn.Module, measured: Measurement) -> Captured:
    """What a measurement of the model says; of `measure_model` with "keep"."""
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
