# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Hooks that record the steps of a training and their parts."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store
from torch.utils.hooks import RemovableHandle

from aikido_torch import _C
from aikido_torch._backend import (
    backend_of,
    backend_until_its_end,
    recorder_of_process,
)
from aikido_torch._steps import StepHook
from aikido_torch.errors import ConfigError
from aikido_torch.trace.record._control import Control
from aikido_torch.trace.record._record import job_of, take_free, tell_of_start

__all__ = ["SECTIONS", "Watch", "watch"]

# Names of the parts of a step in a trace.
SECTIONS = ("data", "forward", "backward", "optimizer")


def watch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Any = None,
    *,
    group: dist.ProcessGroup | None = None,
    first_step: int = 0,
    control: bool = True,
) -> "Watch":
    """Counts steps, and records forward, backward, optimizer and waits for data.

    Call it once on each rank, before the loop. It records nothing until the recording
    is started (`aikido_torch.trace`). A step ends with `optimizer.step()`.

    Args:
        model: the module that the loop calls, such as DistributedDataParallel.
        optimizer: the optimizer that the loop steps.
        loader: the loader that the loop iterates over; None omits waits for data.
        group: an aikido group; None is the default group.
        first_step: number of the next step.
        control: True listens for requests of 'python -m aikido_torch.trace arm', in a
            thread that polls the store of the job four times a second.

    Returns:
        A handle that removes the hooks, and knows the number of the step.

    Raises:
        ConfigError: there is no aikido group, or an argument has the wrong type.
    """
    backend, find = backend_of(group), backend_until_its_end(group)
    if not isinstance(model, torch.nn.Module):
        raise ConfigError(f"watch: model is {model!r}; it takes a torch.nn.Module.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            f"watch: optimizer is {optimizer!r}; it takes an optimizer, such as "
            "SGD(...)."
        )
    if loader is not None and not hasattr(type(loader), "__iter__"):
        raise ConfigError(
            f"watch: loader is {loader!r}; it takes something to iterate over, such as "
            "a DataLoader."
        )
    job_of()
    watch = Watch(recorder_of_process(), first_step)
    watch._install(model, optimizer, loader)
    if control:
        watch._control = Control(
            _get_default_store(),
            recorder_of_process(),
            backend.place,
            lambda: take_free(group),
            has_ended=lambda: find() is None,
        )
    return watch


class Watch:
    """Handle of `watch`. For the training thread only.

    Hooks for the parts of a step are installed only during a recording. Even hooks that
    do nothing cost tens of microseconds per step, because their data is not in the
    caches.
    """

    def __init__(self, recorder: _C.Recorder, first_step: int) -> None:
        self._recorder = recorder
        self._names = {name: recorder.name(name) for name in SECTIONS}
        self._hooks: list[RemovableHandle] = []
        self._parts: list[RemovableHandle] = []  # installed during a recording
        self._thread = threading.get_ident()
        self._loader: tuple[Any, type] | None = None
        self._backward = _C.BackwardWatch(recorder, self._names["backward"])
        self._begun: dict[str, int] = {}
        self._control: Control | None = None
        recorder.set_step(first_step)

    @property
    def step(self) -> int:
        """Number of the present step; set it if the loop skips steps."""
        return self._recorder.step

    @step.setter
    def step(self, step: int) -> None:
        self._recorder.set_step(step)
        self.on_armed()

    def remove(self) -> None:
        """Removes all hooks, and stops listening."""
        if self._control is not None:
            self._control.stop()
            self._control = None
        for hook in (*self._hooks, *self._parts):
            hook.remove()
        self._hooks.clear()
        self._parts.clear()
        if self._loader is not None:
            loader, kind = self._loader
            loader.__class__ = kind
            self._loader = None

    def _install(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: Any
    ) -> None:
        if loader is not None:
            kind = type(loader)
            try:
                loader.__class__ = _timed(kind, self)
            except TypeError as error:
                raise ConfigError(
                    f"watch: the class of a {kind.__name__} cannot be extended, so "
                    "waiting for it cannot be timed; pass a DataLoader or an iterable "
                    "class of your own, or None."
                ) from error
            self._loader = (loader, kind)
        self._model, self._optimizer = model, optimizer
        self._hooks.append(optimizer.register_step_post_hook(StepHook(self._end_step)))
        tell_of_start(self)
        self._follow()

    def on_armed(self) -> None:
        """The recorder may be armed from now on."""
        # Only the training thread may change its hooks. In another thread the hooks are
        # installed at the next step.
        if self._hooks and threading.get_ident() == self._thread:
            self._follow()

    def _follow(self) -> None:
        """Installs or removes the hooks of the parts, between two steps."""
        if self._recorder.is_armed == bool(self._parts):
            return
        if self._parts:
            for hook in self._parts:
                hook.remove()
            self._parts.clear()
            return

        self._parts += [
            self._model.register_forward_pre_hook(partial(self._begin, "forward")),
            self._model.register_forward_hook(self._end_forward),
            self._optimizer.register_step_pre_hook(
                StepHook(partial(self._begin, "optimizer"))
            ),
        ]

    def _end_step(self) -> None:
        if self._parts:
            self._end("optimizer")
            self._backward.end_step()
        if self._recorder.next_step() != bool(self._parts):
            self._follow()

    def _end_forward(self, _: object, __: object, output: object) -> None:
        self._end("forward")
        for tensor in _tensors_in(output):
            if tensor.requires_grad:
                self._backward.add(tensor)

    def _begin(self, name: str, *_: object) -> None:
        if self._recorder.is_armed:
            self._begun[name] = time.monotonic_ns()

    def _end(self, name: str) -> None:
        begun = self._begun.pop(name, None)
        if begun is not None:
            now = time.monotonic_ns()
            self._recorder.section(self._names[name], begun, now, self._recorder.step)


def _tensors_in(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


def _timed(kind: Any, watch: Watch) -> type:
    """Subclass of `kind` whose iterator records the time of waiting for each item."""

    def timed_iter(self: Any) -> Iterator[Any]:
        items = iter(kind.__iter__(self))
        while True:
            watch._begin("data")
            try:
                item = next(items)
            except StopIteration:
                watch._begun.pop("data", None)
                return
            watch._end("data")
            yield item

    return type(kind.__name__, (kind,), {"__iter__": timed_iter})
