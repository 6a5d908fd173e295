# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls that take more options than those of `torch.distributed`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from aikido_torch import _C, _tags
from aikido_torch._backend import backend_of, catching_up_on
from aikido_torch._weights import weight_of
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, Carry, Policy, WaitAll
from aikido_torch.straggler._policies import check_ceiling

_GROUP_TIMEOUT = timedelta(milliseconds=-1)


def all_reduce(
    tensor: torch.Tensor,
    *,
    op: dist.ReduceOp | dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    policy: Policy | None = None,
    priority: int | None = None,
    async_op: bool = False,
    timeout: timedelta | None = None,
    carry: Carry | None = None,
    data_shard: int | None = None,
    weight: float | None = None,
) -> _C.AikidoWork:
    """Reduces `tensor` over all ranks in place; `policy` may skip late ranks.

    Args:
        tensor: the same shape and dtype on every rank, of any strides; floating point
            if the policy may skip.
        op: SUM or AVG if the policy may skip, else any. With a policy whose divisor is
            "contributors" AVG is the mean over the contributors, and SUM is scaled by
            world size / contributors.
        group: an aikido group; None is the default group.
        policy: the same on every rank; None is `WaitAll()`.
        priority: higher goes first on the wire, -1000 to 1000; None is the group's
            (`Options.transport_priority`).
        async_op: return at once; `wait()` on the work.
        timeout: of this call; None is the group's.
        carry: adds this rank's pending values of the last call to `tensor`, and keeps
            the values that this call skips; see `aikido_torch.straggler.Carry`. If this
            call is refused, `tensor` contains the pending values already, and they are
            not pending any more.
        data_shard: only with a policy `ActiveBackup`, on a backup that shadows a
            primary: the rank of that primary. A primary has its own data shard.
        weight: only with op AVG, a floating-point or complex tensor, and on all ranks
            or on none: the result is the sum of weight x tensor divided by the sum of
            the weights, over the contributors of each shard. Such as this rank's number
            of samples, with their mean in `tensor`. A tensor of weight 0 does not count
            at all; if all weights are 0, the result is 0. With equal weights the result
            has the bits of a call without weights. `work.outcome().weight` is the sum.
            Goes directly and through the host, also for GPU tensors; not with
            `ActiveBackup`, divisor="world" or `carry`.

    Returns:
        The work. Once it is done, `work.outcome()` names the contributors.

    Raises:
        ConfigError: an argument is wrong or differs between ranks.
        PeerLostError, TimedOutError, AbortedError: see `aikido_torch.errors`.
    """
    backend = backend_of(group)
    _check_own_group("all_reduce", backend, policy)
    try:
        _check_tensor("all_reduce", "tensor", tensor)
        _check_carry(carry, policy)
        _check_data_shard(data_shard)
        weight = _checked_weight("all_reduce", weight, carry)
        native = _prepare("all_reduce", backend, policy, op, priority, timeout)
        if carry is not None:
            carry.add_to(tensor)
    except ConfigError as error:
        _tell("all_reduce", backend, error)
    work = backend.all_reduce(
        tensor,
        _plain(op),
        native,
        priority,
        timeout or _GROUP_TIMEOUT,
        -1 if data_shard is None else data_shard,
        weight,
    )
    if carry is not None:
        carry.watch(work, backend.place[0])
    if not async_op:
        work.wait()
    return work


def reduce_scatter(
    output: torch.Tensor,
    input_list: Sequence[torch.Tensor],
    *,
    op: dist.ReduceOp | dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    policy: Policy | None = None,
    priority: int | None = None,
    async_op: bool = False,
    timeout: timedelta | None = None,
    weight: float | None = None,
) -> _C.AikidoWork:
    """Reduces `input_list[r]` of all ranks into `output` of rank r.

    With a policy that may skip, each rank decides for its own output which ranks it
    waits for. So the contributors differ between ranks; a rank's own contribution is
    always in its output. A late rank is skipped in the outputs of other ranks, and
    finds its own output decided when it calls. `outcome().skipped_by` names the ranks
    that have announced such a skip.

    Args:
        output: same shape and dtype as `input_list[rank]`; may share its memory.
        input_list: one tensor for each rank, floating point if the policy may skip. May
            be overwritten after the call has ended, even if a slow rank has not
            received its part.
        op: SUM or AVG if the policy may skip, else any. Scaled as in `all_reduce`, by
            the number of contributors to this rank's output.
        group: an aikido group; None is the default group.
        policy: the same on every rank; None is `WaitAll()`.
        priority: higher goes first on the wire, -1000 to 1000; None is the group's
            (`Options.transport_priority`).
        async_op: return at once; `wait()` on the work.
        timeout: of this call; None is the group's.
        weight: of all tensors of this rank; see `all_reduce`. `work.outcome().weight`
            is the sum of the weights in `output`.

    Returns:
        The work. After completion, `work.outcome()` names the contributors to `output`.

    Raises:
        ConfigError: an argument is wrong or differs between ranks.
        AbortedError: also if the group excluded this rank because it sent nothing (it
            was stopped or cut off). Then its output does not exist.
        PeerLostError, TimedOutError: see `aikido_torch.errors`.
    """
    backend = backend_of(group)
    _check_own_group("reduce_scatter", backend, policy)
    try:
        _check_tensor("reduce_scatter", "output", output)
        if not isinstance(input_list, Sequence):
            raise ConfigError(
                f"reduce_scatter: input_list is a {type(input_list).__name__}; pass a "
                "list of tensors, one for each rank."
            )
        for r, tensor in enumerate(input_list):
            _check_tensor("reduce_scatter", f"input_list[{r}]", tensor)
        native = _prepare("reduce_scatter", backend, policy, op, priority, timeout)
        weight = _checked_weight("reduce_scatter", weight)
    except ConfigError as error:
        _tell("reduce_scatter", backend, error)
    work = backend.reduce_scatter(
        output,
        list(input_list),
        _plain(op),
        native,
        priority,
        timeout or _GROUP_TIMEOUT,
        weight,
    )
    if not async_op:
        work.wait()
    return work


def reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    *,
    op: dist.ReduceOp | dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    policy: Policy | None = None,
    priority: int | None = None,
    async_op: bool = False,
    timeout: timedelta | None = None,
    weight: float | None = None,
) -> _C.AikidoWork:
    """`reduce_scatter` of equal parts of one tensor, in rank order.

    Args:
        output: of any strides; may be this rank's part of `input`.
        input: of any strides, with world size times the elements of `output`.
        op: see `reduce_scatter`, also for the other arguments.
        group: an aikido group; None is the default group.
        policy: the same on every rank; None is `WaitAll()`.
        priority: higher goes first on the wire, -1000 to 1000; None is the group's
            (`Options.transport_priority`).
        async_op: return at once; `wait()` on the work.
        timeout: of this call; None is the group's.
        weight: of the tensor of this rank; see `reduce_scatter`.

    Returns:
        The work. After completion, `work.outcome()` names the contributors to `output`.

    Raises:
        ConfigError, AbortedError, PeerLostError, TimedOutError: see `reduce_scatter`.
    """
    backend = backend_of(group)
    _check_own_group("reduce_scatter_tensor", backend, policy)
    try:
        _check_tensor("reduce_scatter_tensor", "output", output)
        _check_tensor("reduce_scatter_tensor", "input", input)
        native = _prepare(
            "reduce_scatter_tensor", backend, policy, op, priority, timeout
        )
        weight = _checked_weight("reduce_scatter_tensor", weight)
    except ConfigError as error:
        _tell("reduce_scatter_tensor", backend, error)
    work = backend.reduce_scatter_tensor(
        output, input, _plain(op), native, priority, timeout or _GROUP_TIMEOUT, weight
    )
    if not async_op:
        work.wait()
    return work


def send(
    tensor: torch.Tensor,
    dst: int,
    *,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    priority: int | None = None,
    async_op: bool = False,
    timeout: timedelta | None = None,
) -> _C.AikidoWork:
    """Sends `tensor` to a rank that calls `torch.distributed.recv` with that tag.

    An urgent message is sent between two chunks of less urgent messages, to all ranks.
    Messages with one tag are still received in the order of their calls.

    Args:
        tensor: the same shape and dtype as the receiver's.
        dst: a rank of the group.
        tag: from 0 to 2**30 - 1, the same as the receiver's.
        group: an aikido group; None is the default group.
        priority: higher goes first on the wire, -1000 to 1000; None is the group's
            (`Options.transport_priority`).
        async_op: return at once; `wait()` on the work.
        timeout: of this call; None is the group's.

    Returns:
        The work; it is done when `tensor` may be written to.

    Raises:
        ConfigError: an argument is wrong.
        PeerLostError, TimedOutError, AbortedError: see `aikido_torch.errors`.
    """
    _check_tensor("send", "tensor", tensor)
    for name, value, last in (("dst", dst, 2**31 - 1), ("tag", tag, _tags.USER.last)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not 0 <= value <= last:
            raise ConfigError(
                f"send: {name} is {value!r}; pass a whole number from 0 to {last}."
            )
    _check_priority("send", priority)
    _check_timeout("send", timeout)
    work = backend_of(group).send_message(
        tensor, dst, tag, priority, timeout or _GROUP_TIMEOUT
    )
    if not async_op:
        work.wait()
    return work


def _check_priority(call: str, priority: object) -> None:
    if priority is None:
        return
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise ConfigError(
            f"{call}: priority is {priority!r}; pass a whole number, or None for the "
            "group's."
        )
    lowest, highest = _C.priority_range()
    if not lowest <= priority <= highest:
        raise ConfigError(
            f"{call}: priority is {priority}; it takes a whole number from {lowest} to "
            f"{highest}, higher goes first."
        )


def _check_timeout(call: str, timeout: object) -> None:
    if timeout is not None and not isinstance(timeout, timedelta):
        raise ConfigError(
            f"{call}: timeout is {timeout!r}; pass a datetime.timedelta, or None for "
            "the group's."
        )


def _check_tensor(call: str, argument: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(
            f"{call}: {argument} is a {type(tensor).__name__}; pass a torch.Tensor."
        )


def _check_carry(carry: object, policy: object) -> None:
    if carry is None:
        return
    if not isinstance(carry, Carry):
        raise ConfigError(
            f"all_reduce: carry is {carry!r}; pass an aikido_torch.straggler.Carry(), "
            "or None."
        )
    if isinstance(policy, ActiveBackup):
        raise ConfigError(
            "all_reduce: carry with a policy ActiveBackup: a backup has not got what "
            "this rank was left out with, so the two would contribute different data; "
            "leave carry out."
        )


def _check_data_shard(data_shard: object) -> None:
    if data_shard is None:
        return
    is_whole = isinstance(data_shard, int) and not isinstance(data_shard, bool)
    if not is_whole or not 0 <= data_shard < 1 << 31:  # type: ignore[operator]
        raise ConfigError(
            f"all_reduce: data_shard is {data_shard!r}; pass the rank of a primary, "
            "or None."
        )


def _checked_weight(call: str, weight: object, carry: object = None) -> float | None:
    """The weight as a float. The native call checks its range."""
    if weight is None:
        return None
    if carry is not None:
        raise ConfigError(
            f"{call}: weight is {weight!r} in a call with carry: the pending values of "
            "earlier calls have other weights; leave carry or the weight out."
        )
    return weight_of(call, weight)


def _plain(op: dist.ReduceOp | dist.ReduceOp.RedOpType) -> dist.ReduceOp:
    return dist.ReduceOp(op) if isinstance(op, dist.ReduceOp.RedOpType) else op


def _tell(call: str, backend: _C.AikidoBackend, error: ConfigError) -> NoReturn:
    """Raises `error` with the name of this rank, on all ranks of the call."""
    try:
        backend.refuse_call(call, str(error).removeprefix(f"{call}: "))
    except ConfigError as told:
        raise told from None


def _prepare(
    call: str,
    backend: _C.AikidoBackend,
    policy: Policy | None,
    op: object,
    priority: int | None,
    timeout: timedelta | None,
) -> _C.PolicyOptions:
    """Checks the common arguments of reductions; returns the native policy."""
    if policy is not None and not isinstance(policy, Policy):
        kinds = (
            "WaitAll(), SkipStraggler(...) or ActiveBackup(...)"
            if call == "all_reduce"
            else "WaitAll() or SkipStraggler(...)"
        )
        raise ConfigError(f"{call}: policy is {policy!r}; pass {kinds}.")
    if not isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
        raise ConfigError(f"{call}: op is {op!r}; pass a dist.ReduceOp, such as SUM.")
    _check_priority(call, priority)
    _check_timeout(call, timeout)
    native = (policy if policy is not None else WaitAll()).native()
    check_ceiling(call, policy, timeout or backend.call_timeout)
    return native


def _check_own_group(
    call: str, backend: _C.AikidoBackend, policy: Policy | None
) -> None:
    """Refuses calls on a group of buckets.

    The other ranks are not told, because a sequence number on this group belongs to a
    bucket.
    """
    if policy is None or isinstance(policy, WaitAll):
        return
    model = catching_up_on.get(backend)
    if model is not None and model() is not None:
        raise ConfigError(
            f"{call}: a model was registered on this group with a policy that "
            "skips, and its catch_up takes every committed result for a bucket of its "
            "own; make calls that may skip on a group of their own: "
            "new_group(backend='aikido')."
        )
