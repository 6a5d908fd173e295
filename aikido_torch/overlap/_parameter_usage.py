# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Observation of which module's forward uses which parameters.

Note [where a forward waits for a parameter]
A parameter whose step is not done yet must not be read. A module waits for its own
parameters before its forward. But a forward may read parameters of other modules: a
product with the weights of an embedding, or an attention that never calls the layer
which holds its weights. So the first forward is watched operation by operation: a
parameter waits for its step wherever it is read, and is attributed to the innermost
module whose forward was running. From then on that module waits for the parameter as
well.

The observation holds for sequences of module calls that were seen. A forward whose
sequence differs is noticed at the first different call: all steps are waited for there,
and the next forward is watched again. A forward with the same calls that reads
parameters of other modules at other places waits for them as any other read does
(_awaited.py). Parameters of a class that cannot be marked are the exception: such a
read is noticed only in a watched forward, which each LOOK_EVERY-th is. Earlier forwards
may have read too early. For such a model each forward must be watched.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aikido_torch.overlap._awaited import can_be_marked

__all__ = ["LOOK_EVERY", "Uses"]

LOOK_EVERY = 100  # number of forwards


class Uses:
    """Observed parameter uses of a model's forwards. For the training thread only.

    Args:
        model: the model.
        parameters: the parameters to observe.
        on_use: called before an operation of a watched forward that takes a parameter.
        always: True if each forward is watched.

    Attributes:
        by_module: for each module, the parameters that its forward uses, by id.
        order: parameters by id, in the order of first use in the last watched forward.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: Iterable[torch.Tensor],
        on_use: Callable[[torch.Tensor], None],
        *,
        always: bool = False,
    ) -> None:
        self._model = model
        self._parameters = {id(p): p for p in parameters}
        self._on_use = on_use
        self.by_module: dict[nn.Module, dict[int, torch.Tensor]] = {
            module: {
                id(p): p
                for p in module.parameters(recurse=False)
                if id(p) in self._parameters
            }
            for module in model.modules()
        }
        self.order: dict[int, torch.Tensor] = {}
        self._running: list[nn.Module] = []
        self._known: set[int] = set()  # hashes of sequences of calls that were seen
        self._calls = 0  # hash of the calls of this forward so far
        self._watch: _Watch | None = None
        self._always = always
        self._is_next_watched = True
        self._num_unwatched = 0  # forwards since the last watched one
        # True if all calls of this forward so far were seen before.
        self._is_known = False

    def begin(self) -> None:
        """A forward begins."""
        self._running.clear()
        self._calls = 0
        self._is_known = True
        self._num_unwatched += 1
        if self._is_next_watched or self._num_unwatched >= LOOK_EVERY:
            self._is_next_watched = self._always
            self._num_unwatched = 0
            self.order = {}
            self._watch = _Watch(self._on_tensor)
            self._watch.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """The forward is over, successful or not."""
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    def enter(self, module: nn.Module) -> bool:
        """A module's forward begins, inside a model's. Returns False if it is a new
        sequence.
        """
        self._running.append(module)
        self._calls = hash((self._calls, id(module)))
        if self._watch is not None:
            self._is_known = self._is_known and self._calls in self._known
            self._known.add(self._calls)
            return True
        if self._calls in self._known:
            return True
        self._is_next_watched = True
        return False

    def leave(self, module: nn.Module) -> None:
        """A module's forward is over, and so are those inside it that raised."""
        while self._running and self._running.pop() is not module:
            pass

    def _on_tensor(self, value: Any) -> None:
        parameter = self._parameters.get(id(value))
        if parameter is None:
            return
        self.order.setdefault(id(value), parameter)
        if self._running:
            module = self._running[-1]
            of_module = self.by_module[module]
            if id(value) not in of_module:
                of_module[id(value)] = parameter
                is_waited_for = self._always or can_be_marked(parameter)
                if self._is_known and not is_waited_for:
                    self._warn(module, parameter)
        self._on_use(parameter)

    def _warn(self, module: nn.Module, parameter: torch.Tensor) -> None:
        """Warns of a read in a forward whose sequence was watched before without the
        read.
        """
        (of,) = (name for name, m in self._model.named_modules() if m is module)
        (read,) = (n for n, p in self._model.named_parameters() if p is parameter)
        warnings.warn(
            f"OverlappedDataParallel: the forward of {of or 'the model'!r} reads "
            f"{read!r}, which it did not when it was watched before. Up to "
            f"{LOOK_EVERY - 1} forwards before this one may have read it before its "
            f'step; give watch="always".',
            stacklevel=2,
        )


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that shows all tensor arguments of operations."""

    def __init__(self, show: Callable[[Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._show = show

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                self._show(value)
        return func(*args, **kwargs)
