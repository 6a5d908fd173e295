# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checks of OverlappedDataParallel that refuse cases where gradients would be wrong."""

import sys
import warnings
from collections.abc import Container, Mapping

import torch
from torch import nn
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch.nn.parameter import is_lazy

from aikido_torch._hook import Hook
from aikido_torch.errors import ConfigError
from aikido_torch.overlap._awaited import can_be_marked
from aikido_torch.straggler import ActiveBackup, Policy

__all__ = [
    "ParameterCheck",
    "check_arguments",
    "check_eager",
    "check_gradient",
    "check_parameters",
    "warn_of_classes",
]

_TITLE = "OverlappedDataParallel"
# Modules that sum gradients themselves, or do not call our forward hooks.
_OTHERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_WATCH = ("first", "always")
_COMPILED = "OptimizedModule"


def check_arguments(
    module: object, optimizer: object, policy: object, plan: object, watch: object
) -> None:
    """Raises ConfigError for arguments of a wrong type, and for unsupported modules."""
    _check_kinds(module, optimizer, policy, plan)
    if watch not in _WATCH:
        raise ConfigError(
            f"{_TITLE}: watch is {watch!r}; it takes {' or '.join(_WATCH)}."
        )
    assert isinstance(module, nn.Module)
    for name, part in module.named_modules():
        at = f"{name} is" if name else "module is"
        if type(part).__name__ in (*_OTHERS, _TITLE):
            raise ConfigError(
                f"{_TITLE}: {at} a {type(part).__name__}, which sums gradients itself; "
                "pass the net without it."
            )
        if type(part).__name__ == _COMPILED:
            raise ConfigError(
                f"{_TITLE}: {at} compiled, and a compiled forward cannot wait for "
                "single parameters; pass the module that was compiled."
            )
        if getattr(part, "_compiled_call_impl", None) is not None:
            raise ConfigError(
                f"{_TITLE}: {at} compiled in place, by its compile(), and a compiled "
                "forward cannot wait for single parameters; pass one that is not."
            )
    for name, parameter in module.named_parameters():
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        if any(isinstance(hook, Hook) for hook in hooks.values()):
            raise ConfigError(
                f"{_TITLE}: {name} is trained by another {_TITLE}, and both would sum "
                "its gradient; close() that one before."
            )
    if any(is_lazy(p) for p in module.parameters()):
        raise ConfigError(
            f"{_TITLE}: the module has parameters without a shape; run it once before."
        )
    if isinstance(policy, ActiveBackup):
        raise ConfigError(
            f"{_TITLE}: backups need to know the step of each forward; use "
            "DistributedDataParallel and register(policy=ActiveBackup(...))."
        )
    if getattr(policy, "on_log_full", "wait") == "exclude":
        raise ConfigError(
            f'{_TITLE}: on_log_full="exclude" makes a late rank copy the state of '
            "another one, which register does and this does not; use "
            'on_log_full="wait".'
        )


def _check_kinds(
    module: object, optimizer: object, policy: object, plan: object
) -> None:
    for argument, value, kind, takes in (
        ("module", module, nn.Module, "a torch.nn.Module"),
        ("optimizer", optimizer, torch.optim.Optimizer, "an optimizer, such as SGD"),
        ("policy", policy, Policy, "WaitAll() or SkipStraggler(...)"),
        ("plan", plan, bool, "True or False"),
    ):
        if not isinstance(value, kind):
            raise ConfigError(f"{_TITLE}: {argument} is {value!r}; it takes {takes}.")


def check_parameters(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    known: Container[int] | None = None,
) -> None:
    """Raises ConfigError unless the optimizer has exactly the trained parameters.

    Args:
        module: the wrapped module.
        optimizer: its optimizer.
        known: ids of the parameters that were trained at construction; None during
            construction.
    """
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
    names = {id(p): name for name, p in module.named_parameters()}
    trained = {id(p): n for n, p in module.named_parameters() if p.requires_grad}
    if not trained:
        raise ConfigError(f"{_TITLE}: no parameter of the module requires gradients.")
    left_out = [name for i, name in trained.items() if i not in stepped]
    if left_out:
        raise ConfigError(
            f"{_TITLE}: the optimizer does not step {len(left_out)} parameters of the "
            f"module ({', '.join(left_out[:3])}, ...); give it all that require "
            "gradients, in one optimizer."
        )
    foreign = len(stepped.difference(names))
    if foreign:
        raise ConfigError(
            f"{_TITLE}: the optimizer has {foreign} parameters that the module has "
            "not, and nobody would sum their gradients; take them out of it."
        )
    new = [name for i, name in trained.items() if known is not None and i not in known]
    if new:
        raise ConfigError(
            f"{_TITLE}: {new[0]} is trained, but was not when the module was wrapped; "
            "close() and wrap it again."
        )


class ParameterCheck:
    """Checks the parameters again if groups or requires_grad have changed.

    Args:
        module, optimizer, known: as in `check_parameters`.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        known: Container[int],
    ) -> None:
        self._module, self._optimizer, self._known = module, optimizer, known
        self._parameters = list(module.parameters())
        self._seen: tuple[list[int], list[bool]] | None = None

    def run(self) -> None:
        """Raises ConfigError as `check_parameters` does, in each call after a
        change.
        """
        groups = self._optimizer.param_groups
        stepped = [id(p) for group in groups for p in group["params"]]
        seen = stepped, [p.requires_grad for p in self._parameters]
        if seen != self._seen:
            check_parameters(self._module, self._optimizer, known=self._known)
            self._seen = seen


def check_eager() -> None:
    """Raises ConfigError in a forward that runs under torch.compile."""
    dynamo = sys.modules.get("torch._dynamo")
    # If dynamo gives up tracing a call, it still compiles the calls inside.
    if torch.compiler.is_compiling() or (
        dynamo is not None and callable(get_eval_frame_callback())
    ):
        raise ConfigError(
            f"{_TITLE}: it is called under torch.compile, and a compiled forward "
            "cannot wait for single parameters; call it as it is."
        )


def check_gradient(name: str, parameter: torch.Tensor) -> None:
    """Raises ConfigError for a gradient that cannot be summed, because it is sparse."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.layout != torch.strided:
        raise ConfigError(
            f"{_TITLE}: the gradient of {name} is sparse; use sparse=False in its "
            "layer, or DistributedDataParallel."
        )


def warn_of_classes(parameters: Mapping[str, torch.Tensor]) -> None:
    """Warns once of parameters whose reads cannot be detected (_awaited.py)."""
    unseen = [name for name, p in parameters.items() if not can_be_marked(p)]
    if unseen:
        kind = type(parameters[unseen[0]]).__name__
        warnings.warn(
            f"{_TITLE}: {unseen[0]} is a {kind} ({len(unseen)} such parameters), and a "
            "read of it between two forwards does not wait for its last step; call "
            "synchronize() before you read it, and wait_for_gradients() before you "
            "read its gradient.",
            stacklevel=4,
        )
