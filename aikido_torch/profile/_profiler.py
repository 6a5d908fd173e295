# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The profiler, which measures the layers of a model."""

import contextlib
import copy
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.profile import _trace
from aikido_torch.profile._calls import CalledLayer, record_calls
from aikido_torch.profile._evaluate import (
    Evaluation,
    evaluate,
    getter_of,
    tensors_in,
)
from aikido_torch.profile._layers import Part, parts_of
from aikido_torch.profile._reads import ValueReads
from aikido_torch.profile._recorder import Inputs, IsLayer, layer_rule, structure_of
from aikido_torch.profile._timing import (
    CpuStopwatch,
    CudaStopwatch,
    Program,
    Stopwatch,
    Times,
    find_gradients,
    measure,
    program_of,
)

__all__ = ["Measurement", "measure_calls", "measure_model", "profile_model"]

Way = Literal["auto", "chain", "export"]
_WAYS: dict[str, Callable[[nn.Module, Inputs, IsLayer], _trace.Trace]] = {
    "chain": _trace.trace_chain,
    "export": _trace.trace_export,
}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A profile, and figures that show how reliable it is.

    Attributes:
        profile: the profile of one micro-batch, times in ms.
        trace: the method that found the layers: "chain", "export" or "calls".
        whole_forward_ms, whole_backward_ms: milliseconds of the whole model.
        repeats: number of runs whose median is the time.
        parameters: names of the parameters that a layer uses, by its id.
    """

    profile: _C.Profile
    trace: str
    whole_forward_ms: float
    whole_backward_ms: float
    repeats: int
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def layers_ms(self) -> float:
        """Milliseconds of all layers together, forward and backward."""
        return sum(x.forward_ms + x.backward_ms for x in self.profile.layers)

    @property
    def whole_ms(self) -> float:
        return self.whole_forward_ms + self.whole_backward_ms

    @property
    def ratio(self) -> float:
        """Time of the layers divided by that of the model; far from 1 it is unreliable.

        It is above 1 for layers that are so small that calling them is most of the
        work.
        """
        return self.layers_ms / self.whole_ms if self.whole_ms > 0 else 1.0


def profile_model(
    model: nn.Module,
    sample_inputs: torch.Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    micro_batch: int | None = None,
    repeats: int = 10,
    warm_up: int = 2,
    device: torch.device | str | None = None,
    trace: Way = "auto",
    whole: Sequence[type[nn.Module] | str] = (),
    shared: Literal["refuse", "merge"] = "refuse",
    progress: bool = True,
) -> _C.Profile:
    """Times and sizes of the layers of a model, for `partition`.

    A layer is a module without submodules, or a module of torch.nn, or a module that
    `whole` names. An operation between modules is a layer too if it is expensive.
    Layers are named by the path of their module. Times are medians of single runs,
    forward and backward, in training mode. Each layer runs alone, with the inputs that
    it gets in the model, and `torch.autograd.grad` computes the gradients that training
    needs (`_timing.py` gives the reason for not using hooks). Afterwards buffers,
    gradients, modes and torch's random state are as before.

    Warns, with the lines of code, if the model reads values of tensors, as control flow
    does that depends on data. Then the profile is valid for similar inputs only.

    Args:
        model: on the CPU or on one CUDA device.
        sample_inputs: arguments of the model: a tensor, positional arguments, or
            keyword arguments.
        micro_batch: number of rows of dimension 0 to use; None is all.
        repeats: number of runs whose median is the time.
        warm_up: number of runs before them.
        device: None is the model's device; otherwise a copy of the model runs there.
        trace: method that finds the order of the layers: "chain" for layers in a row,
            "export" by `torch.export`. "auto" tries "export" and then "chain", and for
            an `nn.Sequential` the other way round.
        whole: modules to keep as one layer: classes, or patterns of paths such as
            "blocks.*".
        shared: "merge" makes one layer of layers with a common parameter and the layers
            between them; "refuse" raises.
        progress: True shows a progress bar on standard error if that is a terminal.

    Raises:
        ConfigError: an argument is wrong; the model cannot be divided, and the text
            says which methods were tried; layers share a parameter; a layer passes no
            gradient.
    """
    _check_choice("shared", shared, ("refuse", "merge"))
    return measure_model(
        model,
        sample_inputs,
        micro_batch=micro_batch,
        repeats=repeats,
        warm_up=warm_up,
        device=device,
        trace=trace,
        whole=whole,
        shared=shared,
        progress=progress,
    ).profile


def measure_model(
    model: nn.Module,
    sample_inputs: torch.Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    micro_batch: int | None = None,
    repeats: int = 10,
    warm_up: int = 2,
    device: torch.device | str | None = None,
    trace: Way = "auto",
    whole: Sequence[type[nn.Module] | str] = (),
    shared: Literal["refuse", "merge", "keep"] = "refuse",
    progress: bool = True,
    stopwatch: Stopwatch | None = None,
) -> Measurement:
    """Like `profile_model`, but also times the whole model.

    Args:
        shared: also "keep": layers that share a parameter stay separate, and each
            counts all its bytes. No plan can be made of such a profile.
        stopwatch: clock of `_timing`; None is the one for the device.
    """
    _check_counts(repeats=repeats, warm_up=warm_up)
    _check_choice("trace", trace, ("auto", *_WAYS))
    _check_choice("shared", shared, ("refuse", "merge", "keep"))
    inputs = _inputs(sample_inputs, micro_batch)
    model, inputs, place = _placed(model, inputs, device)
    watch = stopwatch or _stopwatch_of(place)
    with _kept(model, place):
        _try_out(model, inputs)
        traced, done = _taken_apart(model, inputs, trace, layer_rule(whole))
        parts = parts_of(traced, done, model, shared=shared)
        get = getter_of(traced, model)
        programs = [program_of(part, done, get) for part in parts]
        find_gradients(parts, programs, done)
        del done
        whole_model = _whole(model, inputs)
        times = _timed([*programs, whole_model], watch, repeats, warm_up, progress)
    return Measurement(
        profile=_profile(parts, times),
        trace=traced.way,
        whole_forward_ms=times[-1].forward_ms,
        whole_backward_ms=times[-1].backward_ms,
        repeats=repeats,
        parameters=_names_of(parts, model),
    )


def measure_calls(
    model: nn.Module,
    sample_inputs: torch.Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    repeats: int = 10,
    warm_up: int = 2,
    whole: Sequence[type[nn.Module] | str] = (),
    progress: bool = True,
    stopwatch: Stopwatch | None = None,
) -> Measurement:
    """Like `measure_model` with "keep", with layers in the order of their calls.

    It works for each model that runs, but with less information: each layer is assumed
    to need the one before, and operations between layers are not seen. No plan can be
    made of such a profile.

    Raises:
        ConfigError: an argument is wrong, the model calls no layer, or its backward
            fails.
    """
    _check_counts(repeats=repeats, warm_up=warm_up)
    inputs = _inputs(sample_inputs, None)
    model, inputs, place = _placed(model, inputs, None)
    watch = stopwatch or _stopwatch_of(place)
    with _kept(model, place):
        _try_out(model, inputs)
        copies = _mapped(inputs, torch.clone)
        try:
            calls = record_calls(model, copies, layer_rule(whole))
            programs = [
                Program(_runner(call.module), list(call.arguments), call.parameters)
                for call in calls
            ]
            for program in programs:
                program.choose_roots()
            whole_model = _whole(model, inputs)
        except RuntimeError as error:
            raise ConfigError(f"the backward of the model fails: {error}") from error
        times = _timed([*programs, whole_model], watch, repeats, warm_up, progress)
    layers = [
        _C.Layer(
            call.id,
            description=type(call.module).__name__,
            forward_ms=taken.forward_ms,
            backward_ms=taken.backward_ms,
            activation_bytes=call.activation_bytes,
            parameter_bytes=sum(p.numel() * p.element_size() for p in call.parameters),
        )
        for call, taken in zip(calls, times[: len(calls)], strict=True)
    ]
    return Measurement(
        profile=_C.Profile(layers, list(pairwise(call.id for call in calls))),
        trace="calls",
        whole_forward_ms=times[-1].forward_ms,
        whole_backward_ms=times[-1].backward_ms,
        repeats=repeats,
        parameters=_names_of(calls, model),
    )


def _runner(module: nn.Module) -> Callable[..., Any]:
    return lambda args, kwargs: module(*args, **kwargs)


def _whole(model: nn.Module, inputs: Inputs) -> Program:
    program = Program(_runner(model), [inputs.args, inputs.kwargs], model.parameters())
    program.choose_roots()
    return program


def _timed(
    programs: Sequence[Program],
    watch: Stopwatch,
    repeats: int,
    warm_up: int,
    progress: bool,
) -> list[Times]:
    """Measures with a progress bar that counts the runs."""
    with _bar((repeats + warm_up) * len(programs), progress) as advance:
        return measure(
            programs, watch, warm_up=warm_up, repeats=repeats, advance=advance
        )


def _stopwatch_of(place: torch.device) -> Stopwatch:
    return CudaStopwatch(place) if place.type == "cuda" else CpuStopwatch()


def _names_of(
    parts: Sequence[Part | CalledLayer], model: nn.Module
) -> dict[str, tuple[str, ...]]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {
        part.id: tuple(names[p] for p in part.parameters if p in names)
        for part in parts
    }


def _profile(parts: Sequence[Part], times: Sequence[Times]) -> _C.Profile:
    layers = [
        _C.Layer(
            part.id,
            description=part.description,
            forward_ms=taken.forward_ms,
            backward_ms=taken.backward_ms,
            activation_bytes=part.activation_bytes,
            parameter_bytes=part.parameter_bytes,
        )
        for part, taken in zip(parts, times[: len(parts)], strict=True)
    ]
    edges = [(other.id, part.id) for part in parts for other in part.needs]
    return _C.Profile(layers, edges)


# ---- arguments ----


def _check_counts(*, repeats: int, warm_up: int) -> None:
    for name, value, least in (("repeats", repeats, 1), ("warm_up", warm_up, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} is {value!r}; it takes a number from {least} up")


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}; it takes {', '.join(choices)}")


def _inputs(sample: Any, micro_batch: int | None) -> Inputs:
    if isinstance(sample, Mapping):
        inputs = Inputs((), dict(sample))
    elif isinstance(sample, torch.Tensor):
        inputs = Inputs((sample,), {})
    elif isinstance(sample, list | tuple):
        inputs = Inputs(tuple(sample), {})
    else:
        raise ConfigError(
            f"sample_inputs is a {type(sample).__name__}; it takes a tensor, a tuple "
            "or list of what the model is called with, or a dict of keyword arguments"
        )
    if micro_batch is None:
        return inputs
    if not isinstance(micro_batch, int) or micro_batch < 1:
        raise ConfigError(
            f"micro_batch is {micro_batch!r}; it takes a number from 1 up, or None"
        )
    for name, tensor in _named(inputs):
        if tensor.dim() == 0 or tensor.size(0) < micro_batch:
            raise ConfigError(
                f"micro_batch is {micro_batch}, and input {name} has the shape "
                f"{list(tensor.shape)}; each needs as many in its first dimension"
            )
    return _mapped(inputs, lambda tensor: tensor[:micro_batch])


def _named(inputs: Inputs) -> list[tuple[str, torch.Tensor]]:
    """Tensors with their place in the call."""
    found = []
    for place, value in [*enumerate(inputs.args), *inputs.kwargs.items()]:
        structure, tensors = structure_of(value)
        for path, tensor in zip(structure.paths, tensors, strict=True):
            found.append((f"{place}{pytree.keystr(path)}", tensor))
    return found


def _mapped(inputs: Inputs, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, change, (inputs.args, inputs.kwargs)
    )
    return Inputs(args, kwargs)


def _placed(
    model: nn.Module, inputs: Inputs, device: torch.device | str | None
) -> tuple[nn.Module, Inputs, torch.device]:
    """Model and inputs on the device, and the device."""
    state = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in state:
        if is_lazy(tensor):
            raise ConfigError(
                f'parameter "{name}" has no size yet: run the model once before'
            )
    if device is not None:
        try:
            place = torch.device(device)
            model = copy.deepcopy(model).to(place)
            inputs = _mapped(inputs, lambda tensor: tensor.to(place))
        # torch raises both for unusable devices.
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"no copy of the model on {device}: {error}") from error
        state = [*model.named_parameters(), *model.named_buffers()]
    on = {tensor.device: name for name, tensor in state}
    if len(on) > 1:
        told = ", ".join(f'"{name}" on {where}' for where, name in on.items())
        raise ConfigError(f"the model is on several devices: {told}; it takes one")
    given = _named(inputs)
    place = next(iter(on), given[0][1].device if given else torch.device("cpu"))
    for name, tensor in given:
        if tensor.device != place:
            raise ConfigError(
                f"input {name} is on {tensor.device} and the model on {place}; both "
                "have to be on one device, or device= to say on which"
            )
    if place.type not in ("cpu", "cuda"):
        raise ConfigError(f"the model is on {place}; layers are timed on cpu and cuda")
    return model, inputs, place


# ---- restoring the model ----


@contextlib.contextmanager
def _kept(model: nn.Module, place: torch.device) -> Iterator[None]:
    """Context with training mode and gradients; afterwards the model is as before."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module._buffers, dict(module._buffers), copies)
        for module in model.modules()
        if (
            copies := {
                n: b.clone() for n, b in module._buffers.items() if b is not None
            }
        )
    ]
    devices = [place] if place.type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            model.train()
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for table, before, copies in buffers:
                table.update(before)
                for name, value in copies.items():
                    kept = before[name]
                    assert kept is not None
                    kept.copy_(value)


def _try_out(model: nn.Module, inputs: Inputs) -> None:
    """Runs the model once, so that its own errors are reported before errors of
    tracing.
    """
    copies = _mapped(inputs, torch.clone)
    reads = ValueReads(model)
    try:
        with reads:
            output = model(*copies.args, **copies.kwargs)
    except Exception as error:
        what = _trace.reason_of(error, model)
        raise ConfigError(f"the model fails with the sample inputs: {what}") from error
    for path, leaf in pytree.tree_flatten_with_path(output)[0]:
        if leaf is not None and not isinstance(leaf, torch.Tensor):
            raise ConfigError(
                f"the model returns a {type(leaf).__name__} as output"
                f"{pytree.keystr(path)}; it may return tensors, or tuples, lists and "
                "dicts of them"
            )
    if not tensors_in(output):
        raise ConfigError("the model returns no tensor")
    reads.warn()


def _taken_apart(
    model: nn.Module, inputs: Inputs, trace: Way, is_layer: IsLayer
) -> tuple[_trace.Trace, Evaluation]:
    ways = [trace] if trace != "auto" else ["export", "chain"]
    is_layer_itself = next(model.children(), None) is None or is_layer("", model)
    if trace == "auto" and (_trace.is_sequential(model) or is_layer_itself):
        ways = ["chain", "export"]
    reasons = []
    for way in ways:
        copies = _mapped(inputs, torch.clone)
        try:
            traced = _WAYS[way](model, copies, is_layer)
            return traced, evaluate(traced, model)
        except ConfigError:
            raise
        except Exception as error:
            reasons.append(f'By "{way}": {_trace.reason_of(error, model)}.')
            traceback.clear_frames(error.__traceback__)  # the frames hold tensors
    raise ConfigError(
        "the model cannot be taken apart into layers. "
        + " ".join(reasons)
        + " What holds the trouble may be one layer as it is (whole=...)"
    )


@contextlib.contextmanager
def _bar(total: int, is_wanted: bool) -> Iterator[Callable[[], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not (is_wanted and console.is_terminal),
    ) as bar:
        task = bar.add_task("profiling", total=total)
        yield lambda: bar.advance(task)
