# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Collectives that say more than `torch.distributed` has room for."""

from datetime import timedelta

import torch
import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import backend_of, catching_up_on
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import Carry, Policy, WaitAll

_GROUP_TIMEOUT = timedelta(milliseconds=-1)


def all_reduce(
    tensor: torch.Tensor,
    *,
    op: dist.ReduceOp | dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    policy: Policy | None = None,
    priority: int = 0,
    async_op: bool = False,
    timeout: timedelta | None = None,
    carry: Carry | None = None,
) -> _C.AikidoWork:
    """Reduces `tensor` over all ranks in place, without late ones if `policy` says so.

    Args:
        tensor: the same shape and dtype on every rank, of any strides; floating point
            if the policy may skip.
        op: SUM or AVG if the policy may skip, else any. With a policy whose divisor is
            "contributors" AVG is the mean over those who contributed, and SUM is scaled
            by world size / contributors.
        group: an aikido group; None is the default group.
        policy: the same on every rank; None is `WaitAll()`.
        priority: higher goes first on the wire.
        async_op: return at once; `wait()` on the work.
        timeout: of this call; None is the group's.
        carry: adds to `tensor` what the last call with it left out of this rank's, and
            keeps what this one leaves out; see `aikido_torch.straggler.Carry`. If this
            call is refused, `tensor` has it in it, and nothing is pending.

    Returns:
        The work. `work.outcome()` tells who contributed once it is done.

    Raises:
        ConfigError: an argument is wrong or differs between ranks.
        PeerLostError, TimedOutError, AbortedError: see `aikido_torch.errors`.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(
            f"all_reduce: tensor is a {type(tensor).__name__}; pass a torch.Tensor."
        )
    if policy is not None and not isinstance(policy, Policy):
        raise ConfigError(
            f"all_reduce: policy is {policy!r}; pass WaitAll() or SkipStraggler(...)."
        )
    backend = backend_of(group)
    if policy is not None and policy != WaitAll():
        _check_own_group(backend)
    native = (policy if policy is not None else WaitAll()).native()
    if isinstance(op, dist.ReduceOp.RedOpType):
        op = dist.ReduceOp(op)
    if carry is not None:
        carry.add_to(tensor)
    work = backend.all_reduce(tensor, op, native, priority, timeout or _GROUP_TIMEOUT)
    if carry is not None:
        carry.watch(work, backend.place[0])
    if not async_op:
        work.wait()
    return work


def _check_own_group(backend: _C.AikidoBackend) -> None:
    model = catching_up_on.get(backend)
    if model is not None and model() is not None:
        raise ConfigError(
            "all_reduce: a model was registered on this group with a policy that "
            "skips, and its catch_up takes every committed result for a bucket of its "
            "own; make calls that may skip on a group of their own: "
            "new_group(backend='aikido')."
        )
