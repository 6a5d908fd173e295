# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Comparison of the arguments of `register` between ranks, before the first step.

Without it, ranks that apply the same gradients in different ways would drift apart
without any error.
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
    """Facts that must be equal on all ranks, by argument and place."""
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
    """The value of each option by name, so that an error can name a difference."""
    told = {argument: type(value).__name__ for argument, value in arguments.items()}
    for argument, value in arguments.items():
        told |= {f"{argument}.{name}": repr(v) for name, v in vars(value).items()}
    return told


def check_policy(call: str, policy: Policy, group: dist.ProcessGroup | None) -> None:
    """Checks the values of a policy, after all ranks have agreed on the policy.

    Therefore all ranks raise the same error.

    Raises:
        ConfigError: a value of the policy is out of its range in this group.
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
    """Sentence about the first place where the layouts differ.

    Raises:
        ValueError: the layouts are equal.
    """
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
    """Facts that one rank knows when it registers a model.

    Attributes:
        number: number of the model among the models of its process.
        generator: digestible state of this rank's default random generator.
    """

    number: int
    generator: bytes


@dataclass(frozen=True)
class Agreed:
    """Facts that all ranks know after `agree`.

    Attributes:
        number: number of the model on its group, equal on all ranks.
        has_equal_generators: True if all ranks draw the same random numbers.
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
    """Compares layouts and random generators. All ranks of `group` call it together.

    Args:
        layout: the facts that must be equal on all ranks.
        own: the facts of this rank.
        group: None means the default group.
        call: name of the public function, for the text of errors.

    Raises:
        ConfigError: the layouts differ. All ranks raise it, with the first differing
            place.
    """
    digests = [_digest(repr(sorted(layout.items())).encode()), _digest(own.generator)]
    facts = gather((own.number, *digests), group)
    numbers, layouts, generators = zip(*facts, strict=True)
    if len(set(layouts)) > 1:
        # Layouts of large models are long, so they are sent only if the digests differ.
        text = first_difference(gather(dict(layout), group), call)
        raise ConfigError(say_both(text, backend_of(group)))
    return Agreed(max(numbers), len(set(generators)) == 1)


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def gather(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """The values that the ranks of `group` pass, by rank. None: the default group."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found
