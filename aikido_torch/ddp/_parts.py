# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The step of an optimizer, for some of its parameters at a time.

Note [one optimizer, in parts]
The real optimizer does each part: for its time the lists of its groups hold only the
parameters of the part, and the groups the values that they had when the step was asked
for, since a scheduler may have changed them meanwhile. There is one state, under the
optimizer's own keys, and nothing of the optimizer is done again in other words. That is
the same as one step if the optimizer treats each parameter by itself, which
`check_in_parts` tries out on a small one.
"""

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

from aikido_torch._steps import StepHook
from aikido_torch.errors import ConfigError

__all__ = ["Values", "check_in_parts", "needs_whole_step", "step_part", "values_of"]

# What the groups of an optimizer have besides their parameters.
Values = tuple[dict[str, Any], ...]

_TRIED_STEPS = 2
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def values_of(optimizer: torch.optim.Optimizer) -> Values:
    """As they are now; nothing changes them afterwards."""
    return tuple(
        {
            key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in group.items()
            if key != "params"
        }
        for group in optimizer.param_groups
    )


def step_part(
    optimizer: torch.optim.Optimizer,
    step: Callable[[], object],
    parameters: Collection[torch.Tensor],
    values: Values,
) -> None:
    """Steps these parameters, which have their gradients, and no other.

    Args:
        step: of the optimizer.
        values: of its groups.

    Raises:
        ConfigError: it has got other groups since.
    """
    part = {id(p) for p in parameters}
    groups = optimizer.param_groups
    if len(groups) != len(values):
        raise ConfigError(
            f"OverlappedDataParallel: the optimizer has {len(groups)} param_groups and "
            f"had {len(values)} at its last step, which is still to come for some "
            "parameters; call synchronize() of the model before add_param_group."
        )
    own = [dict(group) for group in groups]
    try:
        for group, then in zip(groups, values, strict=True):
            group.update(then)
            group["params"] = [p for p in group["params"] if id(p) in part]
        step()
    finally:
        for group, before in zip(groups, own, strict=True):
            group.update(before)


def needs_whole_step(optimizer: torch.optim.Optimizer) -> bool:
    """Whether something beside the optimizer wants to see each step in one piece.

    That are hooks of its step, but for those of `trace.watch`, and a GradScaler, which
    leaves its scale with an optimizer that is fused for the time of the step.
    """
    hooks = (
        *optimizer._optimizer_step_pre_hooks.values(),
        *optimizer._optimizer_step_post_hooks.values(),
        *_global_optimizer_pre_hooks.values(),
        *_global_optimizer_post_hooks.values(),
    )
    has_hooks = any(not isinstance(hook, StepHook) for hook in hooks)
    scaled = (getattr(optimizer, name, None) for name in ("grad_scale", "found_inf"))
    return has_hooks or any(value is not None for value in scaled)


def check_in_parts(optimizer: torch.optim.Optimizer) -> None:
    """Tries out whether steps in parts are steps: a copy with small parameters.

    Raises:
        ConfigError: they are not, or it cannot be found out.
    """
    name = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ConfigError(
            "OverlappedDataParallel: LBFGS evaluates the model in its step and needs "
            "all parameters for it, so no bucket can be stepped by itself; take "
            "another optimizer, or DistributedDataParallel."
        )
    whole, parts = _small(optimizer), _small(optimizer)
    try:
        for number in range(_TRIED_STEPS):
            _give_gradients(whole, number)
            _give_gradients(parts, number)
            values = values_of(whole)
            whole.step()
            for p in [p for group in parts.param_groups for p in group["params"]]:
                step_part(parts, parts.step, [p], values)
            if _differs(values, values_of(whole)):
                raise ConfigError(
                    f"OverlappedDataParallel: a step of {name} changes values of its "
                    "param_groups, so steps of single buckets would change them again "
                    "and again; take another optimizer, or DistributedDataParallel."
                )
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"OverlappedDataParallel: a step of {name} was tried out on small "
            f"parameters and failed ({error}), so nobody knows whether it can step "
            "each bucket by itself; use DistributedDataParallel."
        ) from error
    if _differs(_counters(whole), _counters(parts)):
        raise ConfigError(
            f"OverlappedDataParallel: {name} counts its steps in an attribute of its "
            "own, so steps of single buckets would count again and again; take another "
            "optimizer, or DistributedDataParallel."
        )
    if _differs(_results(whole), _results(parts)):
        raise ConfigError(
            f"OverlappedDataParallel: {name} steps a parameter in another way when "
            "it is stepped without the others, so no bucket can be stepped by itself; "
            "take another optimizer, or DistributedDataParallel."
        )


def _small(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """A copy without state, with two small parameters for each up to two of its own.

    It has no hooks: they are the user's, who has asked for no step.
    """
    small = copy.copy(optimizer)
    kept = {"state", "param_groups", "step", *_HOOKS}
    small.__dict__ = {
        key: copy.deepcopy(value)
        for key, value in optimizer.__dict__.items()
        if key not in kept
    }
    small.__dict__["state"] = defaultdict(dict)
    small.__dict__ |= {name: OrderedDict() for name in _HOOKS}
    draw = torch.Generator().manual_seed(0)
    groups = []
    for group in optimizer.param_groups:
        like = group["params"][:2]
        parameters = [_small_parameter(p, draw) for p in [*like, *like[:1]]]
        values = {k: copy.deepcopy(v) for k, v in group.items() if k != "params"}
        groups.append(values | {"params": parameters})
    small.__dict__["param_groups"] = groups
    return small


def _small_parameter(like: torch.Tensor, draw: torch.Generator) -> torch.nn.Parameter:
    shape = [min(size, 3) for size in like.shape]
    data = torch.randn(shape, generator=draw).to(like.device, like.dtype)
    return torch.nn.Parameter(data)


def _give_gradients(optimizer: torch.optim.Optimizer, seed: int) -> None:
    draw = torch.Generator().manual_seed(1 + seed)
    for group in optimizer.param_groups:
        for p in group["params"]:
            drawn = torch.randn(p.shape, generator=draw)
            p.grad = (drawn * 10.0 ** len(p.shape)).to(p.device, p.dtype)


def _results(optimizer: torch.optim.Optimizer) -> list[Any]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [(p.detach(), optimizer.state.get(p, {})) for p in parameters]


def _counters(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Numbers and tensors that it has besides its groups and state."""
    kinds = (int, float, torch.Tensor)
    return {k: v for k, v in vars(optimizer).items() if isinstance(v, kinds)}


def _differs(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return not torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() != b.keys() or any(_differs(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) != len(b) or _any_differs(zip(a, b, strict=True))
    return bool(a != b)


def _any_differs(pairs: Iterable[tuple[Any, Any]]) -> bool:
    return any(_differs(a, b) for a, b in pairs)
