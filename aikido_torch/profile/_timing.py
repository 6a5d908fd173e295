# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Times of each layer, forward and backward, and of the whole model.

Note [backward of one layer]
Each layer runs alone, on copies of its inputs in the model, and `torch.autograd.grad`
computes from its outputs the gradients of the inputs and parameters. Hooks cannot show
these times. A hook shows when a gradient reached a layer, but autograd runs ready
functions in its own order, so with branches the time between two hooks belongs to
several layers. Hooks also miss in-place operations.

Not counted: the addition of gradients where a value is used twice, and their addition
to `.grad`. Also not counted is work that training does not need: gradients of inputs
that need none, and gradients that no loss can reach.

All layers and the whole model run once before any of them runs again. So a machine that
gets slower affects all of them equally, and caches are as cold as in training.
"""

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol, TypeVar

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from aikido_torch.errors import ConfigError
from aikido_torch.profile._evaluate import Evaluation, tensors_in
from aikido_torch.profile._layers import Part

__all__ = [
    "CpuStopwatch",
    "CudaStopwatch",
    "Program",
    "Stopwatch",
    "Times",
    "find_gradients",
    "measure",
    "program_of",
]

_T = TypeVar("_T")


class Stopwatch(Protocol):
    """Interface of clocks for calls; `read` gives the ms of all calls since the last
    read.
    """

    def time(self, run: Callable[[], _T]) -> _T: ...
    def read(self) -> list[float]: ...


class CpuStopwatch:
    """Stopwatch for work that is complete when the call returns."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._times: list[float] = []

    def time(self, run: Callable[[], _T]) -> _T:
        start = self._clock()
        result = run()
        self._times.append((self._clock() - start) * 1e3)
        return result

    def read(self) -> list[float]:
        times, self._times = self._times, []
        return times


class CudaStopwatch:
    """Stopwatch with CUDA events on the current stream; only `read` waits for the
    device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def time(self, run: Callable[[], _T]) -> _T:
        start, end = (_event() for _ in range(2))
        with torch.cuda.device(self._device):
            start.record()
            result = run()
            end.record()
        self._events.append((start, end))
        return result

    def read(self) -> list[float]:
        torch.cuda.synchronize(self._device)
        times = [start.elapsed_time(end) for start, end in self._events]
        self._events.clear()
        return times


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class Program:
    """Code that runs forward and backward on its own.

    Args:
        run: takes `inputs`, returns nested containers of tensors.
        inputs: containers of tensors, with requires_grad where they need gradients.
            They do not change: each run gets copies.
        parameters: parameters whose gradients are computed.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        inputs: Sequence[Any],
        parameters: Iterable[nn.Parameter],
    ) -> None:
        self._run = run
        self._inputs = inputs
        self._sources = [t for t in tensors_in(list(inputs)) if t.requires_grad]
        self._parameters = [p for p in parameters if p.requires_grad]
        # Indices of outputs with a gradient, and these gradients.
        self._roots: list[int] = []
        self._gradients: list[torch.Tensor] = []

    @property
    def is_trained(self) -> bool:
        return bool(self._parameters)

    @property
    def needs_gradient(self) -> bool:
        return bool(self._sources or self._parameters)

    @property
    def has_backward(self) -> bool:
        return bool(self._roots)

    def outputs(self) -> list[torch.Tensor]:
        """Output tensors of one run."""
        return tensors_in(self._run(*self._copies()))

    def choose_roots(self, is_root: Sequence[bool] | None = None) -> list[bool]:
        """Decides once for all runs which outputs get gradients.

        Args:
            is_root: by output tensor; None is all of them.

        Returns:
            For each input that needs a gradient: True if it gets one.
        """
        made = self.outputs()
        self._roots = [
            i
            for i, tensor in enumerate(made)
            if tensor.requires_grad
            and (is_root is None or is_root[i])
            and self.needs_gradient
        ]
        if not self._roots:
            return [False] * len(self._sources)
        self._gradients = [torch.randn_like(made[i]) for i in self._roots]
        gradients = self._backward([made[i] for i in self._roots])
        return [g is not None for g in gradients[: len(self._sources)]]

    def time(self, watch: Stopwatch) -> int:
        """Runs once and measures; returns the number of measured calls, 1 or 2."""
        copies = self._copies()
        made = tensors_in(watch.time(lambda: self._run(*copies)))
        if not self._roots:
            return 1
        roots = [made[i] for i in self._roots]
        watch.time(lambda: self._backward(roots))
        return 2

    def _copies(self) -> list[Any]:
        # Tensors that need gradients are copied too, because in-place operations refuse
        # leaves.
        return [
            pytree.tree_map_only(torch.Tensor, torch.clone, x) for x in self._inputs
        ]

    def _backward(self, roots: list[torch.Tensor]) -> Sequence[torch.Tensor | None]:
        return torch.autograd.grad(
            roots,
            [*self._sources, *self._parameters],
            self._gradients,
            allow_unused=True,
        )


def program_of(part: Part, done: Evaluation, get: Callable[[fx.Node], Any]) -> Program:
    """Program of a layer; `get` returns the object that an entry names
    (`getter_of`).
    """
    graph = fx.Graph()
    root: dict[str, Any] = {}
    made: dict[fx.Node, Any] = {}
    is_grad_on = True
    for i, value in enumerate(part.inputs):
        made[value] = graph.placeholder(f"input_{i}")

    def argument(entry: fx.Node) -> Any:
        return made[entry] if entry in made else done.values[entry]

    for entry in part.entries:
        if entry.op != "get_attr" and entry.meta.get("no_grad", False) == is_grad_on:
            is_grad_on = not is_grad_on
            graph.call_function(torch._C._set_grad_enabled, (is_grad_on,))
        copy = made[entry] = graph.node_copy(entry, argument)
        if entry.op in ("call_module", "get_attr"):
            copy.target = f"part_{len(root)}"
            root[copy.target] = get(entry)
    if not is_grad_on:
        graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output(tuple(made[value] for value in part.outputs))
    module = fx.GraphModule(root, graph)
    inputs = [done.values[value] for value in part.inputs]
    return Program(module.forward, inputs, part.parameters)


def find_gradients(
    parts: Sequence[Part], programs: Sequence[Program], done: Evaluation
) -> None:
    """Determines which outputs of layers get gradients, from the last layer on.

    Raises:
        ConfigError: no gradient can pass through a layer; the text names it.
    """
    # Tensors by the entry whose value contains them, and the index in it.
    wanted = {
        (use.value, i)
        for use in done.outputs
        for i in range(len(tensors_in(done.values[use.value])))
    }
    for part, program in zip(reversed(parts), reversed(programs), strict=True):
        keys = _keys(part.outputs, done)
        try:
            comes_out = program.choose_roots([key in wanted for key in keys])
        except RuntimeError as error:
            raise ConfigError(
                f'the backward of layer "{part.id}" ({part.description}) fails: {error}'
            ) from error
        sources = [
            (value, i)
            for value, i in _keys(part.inputs, done)
            if tensors_in(done.values[value])[i].requires_grad
        ]
        wanted |= {key for key, came in zip(sources, comes_out, strict=True) if came}
    _refuse_dead_ends(parts, programs)


def _keys(values: Iterable[fx.Node], done: Evaluation) -> list[tuple[fx.Node, int]]:
    return [
        (value, i)
        for value in values
        for i in range(len(tensors_in(done.values[value])))
    ]


def _refuse_dead_ends(parts: Sequence[Part], programs: Sequence[Program]) -> None:
    after: dict[str, set[str]] = {part.id: {part.id} for part in parts}
    for part in reversed(parts):
        for other in part.needs:
            after[other.id] |= after[part.id]
    for part, program in zip(parts, programs, strict=True):
        if not program.is_trained or program.has_backward:
            continue
        for end, of_end in zip(parts, programs, strict=True):
            if end.id not in after[part.id] or not of_end.needs_gradient:
                continue
            if any(entry.meta.get("no_grad", False) for entry in end.entries):
                continue  # the model itself asked for no gradients
            made = of_end.outputs()
            if made and not any(tensor.requires_grad for tensor in made):
                kinds = ", ".join(sorted({str(tensor.dtype) for tensor in made}))
                raise ConfigError(
                    f'layer "{end.id}" ({end.description}) returns nothing that a '
                    f"gradient can come back through ({kinds}), so that layer "
                    f'"{part.id}" cannot be trained'
                )


@dataclass(frozen=True)
class Times:
    """Median times in ms."""

    forward_ms: float
    backward_ms: float


def measure(
    programs: Sequence[Program],
    watch: Stopwatch,
    *,
    warm_up: int,
    repeats: int,
    advance: Callable[[], None] = lambda: None,
) -> list[Times]:
    """Runs all programs `warm_up + repeats` times, one after the other.

    Args:
        programs: the programs.
        watch: the clock.
        warm_up: number of runs that are ignored.
        repeats: number of measured runs.
        advance: called after each run.
    """
    taken: list[list[tuple[float, float]]] = [[] for _ in programs]
    for sweep in range(warm_up + repeats):
        counts = []
        for program in programs:
            counts.append(program.time(watch))
            advance()
        times = iter(watch.read())
        for of_program, count in zip(taken, counts, strict=True):
            forward, backward = next(times), next(times) if count == 2 else 0.0
            if sweep >= warm_up:
                of_program.append((forward, backward))
    return [
        Times(*(median(map(operator.itemgetter(i), of_program)) for i in range(2)))
        for of_program in taken
    ]
