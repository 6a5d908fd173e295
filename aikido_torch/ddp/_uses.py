# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which module's forward uses which parameters.

Note [who waits for what]
A parameter whose step is still to come must not be read. A module waits for its own
parameters before its forward. But a forward may read those of others: a product with
the weights of an embedding, or an attention that never calls the layer which holds its
weights. So the first forward is watched operation by operation: a parameter waits for
its step wherever it is read, and counts for the innermost module whose forward was
running. From then on that module waits for it as well.

What is remembered holds for the calls of modules that were seen. A forward whose calls
go on in another way is noticed at the first that differs: then all steps are waited for
there, and the next forward is watched again. A forward with the same calls that reads
parameters of others at other places waits for these as any other read does
(_awaited.py). Parameters of a class that cannot be marked are the exception: such a
read is noticed only in a watched forward, which each LOOK_EVERY-th is, and earlier
forwards may have read too early. For such a model each forward is watched.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aikido_torch.ddp._awaited import can_be_marked

__all__ = ["LOOK_EVERY", "Uses"]

LOOK_EVERY = 100  # forwards


class Uses:
    """What was seen of a model's forwards. For the thread that trains.

    Args:
        model: its parameters count that are in `parameters`.
        on_use: called before an operation of a watched forward that takes it.
        always: each forward is watched.

    Attributes:
        order: parameters by id, in the order in which the last watched forward used
            them first.
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
        self._known: set[int] = set()  # calls in a row, as hashes
        self._calls = 0  # of this forward, as such a hash
        self._watch: _Watch | None = None
        self._always = always
        self._is_next_watched = True
        self._num_unwatched = 0  # forwards since the last that was watched
        self._is_known = False  # all calls of this forward so far

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
        """It is over, whether or not it failed."""
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    def enter(self, module: nn.Module) -> bool:
        """A module's forward begins, inside one. False: that was not seen before."""
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
        """A module's forward is over; those inside that raised are, too."""
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
        """Of a read in a forward that went as one before, which had not done it."""
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
    """Shows all that operations take."""

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
