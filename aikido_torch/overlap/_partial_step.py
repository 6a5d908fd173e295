# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A step of an optimizer for some of its parameters at a time.

Note [one optimizer, in parts]
The user's optimizer itself does each partial step. During a partial step, the lists of
its groups hold only the parameters of the part. The options of its groups have the
values of the moment when the loop called step(), because a scheduler may have changed
them since. There is one optimizer state, under the optimizer's own keys, and no second
implementation of the optimizer. Partial steps equal one whole step if the optimizer
treats each parameter by itself; `check_in_parts` tests that on small parameters.
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

# Options of each group, that is all entries except the parameters.
Values = tuple[dict[str, Any], ...]

_TRIED_STEPS = 2
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def values_of(optimizer: torch.optim.Optimizer) -> Values:
    """Copy of the present options of the groups; later changes do not affect it."""
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
    """Steps these parameters, which have their gradients, and no others.

    Args:
        optimizer: the optimizer.
        step: function that steps the optimizer.
        parameters: parameters to step.
        values: options of its groups, from `values_of`.

    Raises:
        ConfigError: the number of groups has changed since `values_of`.
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
    """True if other code must see each step as a whole.

    That code is a step hook, except those of `trace.watch`, or a GradScaler. With a
    fused optimizer a GradScaler stores its scale in the optimizer during the step.
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
    """Tests on copies with small parameters that partial steps equal a whole step.

    Raises:
        ConfigError: they do not, or the test itself failed.
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
    """A copy without state; each group has two or three small parameters.

    The copy has no hooks, because the user has not asked for this step.
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
    """Numbers and tensors among the attributes, besides groups and state."""
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
