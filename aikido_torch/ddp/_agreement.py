# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Whether all ranks registered the same, found before the first step.

A difference would be found by nobody later: ranks that apply the same gradients in
different ways drift apart in silence.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch._backend import backend_of
from aikido_torch._job_ranks import say_both
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import Policy
from aikido_torch.straggler._policies import check_ceiling

__all__ = [
    "Agreed",
    "Registration",
    "agree",
    "check_policy",
    "first_difference",
    "gather",
    "layout_of",
    "options_of",
]


def layout_of(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, str]:
    """What has to be equal on all ranks, by argument and place."""
    names = {id(p): name for name, p in module.named_parameters()}
    layout = {
        f"model.{name}": f"{t.dtype} {list(t.shape)}"
        for name, t in [*module.named_parameters(), *module.named_buffers()]
    }
    layout["optimizer"] = type(optimizer).__name__
    for g, group in enumerate(optimizer.param_groups):
        at = f"optimizer.param_groups[{g}]"
        layout |= {f"{at}.{k}": repr(v) for k, v in group.items() if k != "params"}
        for i, p in enumerate(group["params"]):
            layout[f"{at}.params[{i}]"] = names.get(id(p), "no parameter of the model")
    return layout


def options_of(**arguments: object) -> dict[str, str]:
    """Option by option, so that ranks that differ are told in which."""
    told = {argument: type(value).__name__ for argument, value in arguments.items()}
    for argument, value in arguments.items():
        told |= {f"{argument}.{name}": repr(v) for name, v in vars(value).items()}
    return told


def check_policy(call: str, policy: Policy, group: dist.ProcessGroup | None) -> None:
    """Once all ranks have agreed on it, so that all raise the same.

    Raises:
        ConfigError: a value of it is out of its range in this group.
    """
    backend = backend_of(group)
    try:
        policy.native().check(backend.place[1])
    except ConfigError as error:
        raise ConfigError(f"{call}: {error}") from None
    check_ceiling(call, policy, backend.call_timeout)


def first_difference(
    layouts: Sequence[Mapping[str, str]], call: str = "register"
) -> str:
    """The sentence about the first place at which the layouts differ, which they do."""
    for place in sorted({place for layout in layouts for place in layout}):
        values = [layout.get(place, "missing") for layout in layouts]
        for rank, value in enumerate(values):
            if value != values[0]:
                argument = place.split(".")[0]
                return (
                    f"{call}: {argument} differs between ranks: {place} is "
                    f"{values[0]} on rank 0 but {value} on rank {rank}; give all "
                    f"ranks the same {argument}."
                )
    raise ValueError("the layouts are equal")


@dataclass(frozen=True)
class Registration:
    """What one rank knows when it registers a model.

    Attributes:
        number: of the model, among those of its process.
        generator: the state of its random generator.
    """

    number: int
    generator: bytes


@dataclass(frozen=True)
class Agreed:
    """What all ranks know then.

    Attributes:
        number: of the model on its group.
        has_equal_generators: whether all ranks draw the same random numbers.
    """

    number: int
    has_equal_generators: bool


def agree(
    layout: Mapping[str, str],
    own: Registration,
    group: dist.ProcessGroup | None,
    *,
    call: str = "register",
) -> Agreed:
    """Called by all ranks of `group`; `call` is what the user has called.

    Raises:
        ConfigError: on all ranks, with the first place where the layouts differ.
    """
    digests = [_digest(repr(sorted(layout.items())).encode()), _digest(own.generator)]
    facts = gather((own.number, *digests), group)
    numbers, layouts, generators = zip(*facts, strict=True)
    if len(set(layouts)) > 1:
        # Those of large models travel only now.
        text = first_difference(gather(dict(layout), group), call)
        raise ConfigError(say_both(text, backend_of(group)))
    return Agreed(max(numbers), len(set(generators)) == 1)


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def gather(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """What each rank of `group` (None: the default group) gives, by rank."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found
