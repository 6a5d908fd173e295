# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policy of a training step, and warnings for a policy that cannot skip."""

from dataclasses import replace

import torch

from aikido_torch import _C
from aikido_torch.straggler import ActiveBackup, Policy, SkipStraggler, WaitAll

__all__ = [
    "StepPolicy",
    "losses_at_register",
    "why_nobody_is_skipped",
    "why_the_log_is_small",
]

# The name is compared, because importing the class takes long.
_SHARDED = "ZeroRedundancyOptimizer"
# The largest value that the engine accepts (csrc/straggler/policy.cpp).
_MOST_SKIPS = 1_000_000
# Number of steps that the result log should hold: at least, and recommended.
_LEAST_STEPS, _GOOD_STEPS = 4, 20


class StepPolicy:
    """A policy whose limit on consecutive skips counts steps, as its user expects.

    The engine counts calls, of which each step has one per bucket.

    Attributes:
        policy: the argument.
        skips: True if the policy may skip a rank.
        excludes: True if the other ranks exclude a rank when the result log is full.
        strict: the engine's options for steps that wait for all ranks.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._native: dict[int, _C.PolicyOptions] = {}
        self.skips = not isinstance(policy, WaitAll)
        self.excludes = getattr(policy, "on_log_full", "wait") == "exclude"
        self.strict = WaitAll().native()

    def native(self, calls_per_step: int) -> _C.PolicyOptions:
        """The engine's options for steps with `calls_per_step` calls."""
        if calls_per_step not in self._native:
            policy = self.policy
            if isinstance(policy, SkipStraggler):
                most = policy.max_consecutive_skips * max(1, calls_per_step)
                policy = replace(policy, max_consecutive_skips=min(_MOST_SKIPS, most))
            self._native[calls_per_step] = policy.native()
        return self._native[calls_per_step]


def losses_at_register(
    policy: Policy, optimizer: torch.optim.Optimizer, size: int, log_bytes: int
) -> dict[str, str]:
    """Reasons why skipping gains nothing in a group of `size`, by kind.

    Args:
        policy: policy of the handle.
        optimizer: optimizer of the model.
        size: number of ranks.
        log_bytes: bytes of results that other ranks keep for a late rank.
    """
    found = {"ranks": why_nobody_is_skipped(policy, size)}
    is_sharded = any(c.__name__ == _SHARDED for c in type(optimizer).__mro__)
    if is_sharded and size > 1 and not isinstance(policy, WaitAll):
        found["optimizer"] = (
            "register: in each step of ZeroRedundancyOptimizer each rank broadcasts "
            "its part of the parameters, so all ranks wait for a late rank, whatever "
            "the policy skips. Give register the optimizer that it shards, which each "
            "rank then has as a whole, or policy=WaitAll()."
        )
    if size > 1 and not found["ranks"]:
        gradients = [p for g in optimizer.param_groups for p in g["params"]]
        step_bytes = sum(p.nbytes for p in gradients if p.requires_grad)
        found["log"] = why_the_log_is_small(policy, step_bytes, log_bytes)
    return {kind: text for kind, text in found.items() if text}


def why_nobody_is_skipped(policy: Policy, size: int) -> str:
    """Reason why the policy never skips in a group of `size`; "" if it may skip."""
    if not isinstance(policy, SkipStraggler) or size == 1:
        return ""
    if isinstance(policy, ActiveBackup) and policy.backups > 0:
        return ""
    if policy.min_contributors is None and size == 2:
        return (
            "register: of two ranks none is skipped, since more than half of them have "
            "to contribute to each step; start three ranks or more, or give "
            "SkipStraggler(min_contributors=1), with which either goes on alone."
        )
    if policy.min_contributors == size:
        return (
            f"register: min_contributors is {size} in a group of {size} ranks, so "
            "nobody is ever skipped; give a smaller one, or leave it out."
        )
    return ""


def why_the_log_is_small(policy: Policy, gradient_bytes: int, log_bytes: int) -> str:
    """Reason why the result log holds too few steps; "" if it is large enough.

    Args:
        policy: policy of the handle.
        gradient_bytes: bytes of the gradients of one step, which a late rank misses.
        log_bytes: bytes of results that other ranks keep, `straggler.log_bytes`.
    """
    if not isinstance(policy, SkipStraggler) or policy.on_log_full == "exclude":
        return ""
    num_steps = log_bytes // max(1, gradient_bytes)
    if num_steps >= min(_LEAST_STEPS, policy.max_consecutive_skips):
        return ""
    wanted = _GOOD_STEPS * gradient_bytes
    return (
        f"register: one step of this model has {gradient_bytes} bytes of gradients, "
        f"and other ranks keep {log_bytes} bytes of results for a late rank, so they "
        f"wait for a rank that is more than {num_steps} steps late. Set "
        f"AIKIDO_STRAGGLER_LOG_BYTES={wanted}, or give the group "
        f"Options(straggler_log_bytes={wanted}), for {_GOOD_STEPS} steps; or use "
        'on_log_full="exclude".'
    )
