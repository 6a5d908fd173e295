# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Bounded staleness: each update is applied `slack` steps after its backward.

Note [delayed updates]
A step that waits for its own sums waits for the slowest rank. With slack s the backward
of step t starts the sums of step t and waits for those of step t - s. So the sums of a
late rank may take s steps longer before another rank waits for them. The loop applies
the mean gradient of step t - s in step t. That holds on all ranks, so all ranks have
the same parameters after the same number of steps.

```text
step        f     f+1   ...   f+s-1   f+s     f+s+1
sums of     f     f+1         f+s-1   f+s     f+s+1    start in the backward
sums of     -     -           -       f       f+1      are waited for and applied
```

Here f is the first step with the final layout of buckets; earlier steps are not
delayed. The buckets of a step are copied to one of s + 1 places of a ring, because
DistributedDataParallel reuses its buckets in each step. The step that waits for sums
writes its gradients to the next place, so no sum is overwritten before it is applied.

In the steps f to f + s - 1 there is nothing to apply. Their gradients are 0, and the
step of the optimizer does nothing (`EmptySteps`). `flush` applies the last s updates.
"""

import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from aikido_torch import _C
from aikido_torch._end_calls import call_at_end
from aikido_torch._hook import Hook
from aikido_torch.ddp._buckets import ModelBuckets
from aikido_torch.ddp._futures import future_of
from aikido_torch.errors import ConfigError
from aikido_torch.reassign import StepLoader
from aikido_torch.recovery._backward import after_backward
from aikido_torch.straggler import Policy, WaitAll

if TYPE_CHECKING:
    from aikido_torch.ddp._handle import Handle

__all__ = ["Delay", "EmptySteps", "delay_of", "slack_of", "why_no_slack"]

# Each step of slack needs the memory of all gradients, and makes updates older.
_MOST_SLACK = 64

_log = logging.getLogger("aikido")

_Future = torch.futures.Future[torch.Tensor]


def slack_of(slack: int | None, steps: StepLoader | None) -> int:
    """The number of steps by which updates are late, by `register` or by its loader."""
    if slack is None:
        return 0 if steps is None else steps.slack
    return slack


def why_no_slack(
    given: int | None,
    steps: StepLoader | None,
    policy: Policy,
    late: str,
    optimizer: torch.optim.Optimizer,
    apply: object,
    state: Mapping[str, object],
) -> str:
    """Reason why `register` cannot take the slack; "" if it can.

    Args:
        given: the argument `slack` of `register`.
        steps, policy, late, optimizer, apply, state: arguments of `register`.
    """
    slack = slack_of(given, steps)
    if steps is not None and slack != steps.slack:
        return (
            f"register: slack is {given!r}, and the StepLoader has slack "
            f"{steps.slack}; give it to one of them."
        )
    if type(slack) is not int or not 0 <= slack <= _MOST_SLACK:
        return (
            f"register: slack is {slack!r}; it takes a whole number of steps from 0 to "
            f"{_MOST_SLACK}."
        )
    if slack == 0:
        return ""
    own = f"register: slack is {slack}"
    if not isinstance(policy, WaitAll):
        return (
            f"{own} and the policy is {type(policy).__name__}, which leaves out a late "
            "rank instead of waiting for it, so there is no wait that slack could "
            "absorb; give policy=WaitAll(), or slack=0."
        )
    if late == "carry":
        return (
            f'{own} and late is "carry", which adds a skipped gradient to a later '
            "step; with slack no gradient is skipped: leave late out."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        return (
            f"{own}, but LBFGS evaluates the model in its step and needs the gradient "
            "of the present parameters; take another optimizer, or slack=0."
        )
    has_scaler = any(isinstance(o, torch.amp.GradScaler) for o in state.values())
    if has_scaler and apply is None:
        return (
            f"{own} and state has a GradScaler, but there is no apply, so the last "
            f"{slack} updates would be applied without the scaler; give apply=..., "
            "which unscales, steps and updates as your loop does."
        )
    return ""


class EmptySteps:
    """Steps of an optimizer that find no gradient to apply, and change nothing.

    torch's optimizers skip parameters without a gradient: momentum, weight decay and
    counters of steps do not go on. A GradScaler and functions that clip need gradients.
    So the gradients are 0 in such a step, and are hidden while `optimizer.step` runs.

    Args:
        optimizer: the optimizer of the loop.
        parameters: returns the parameters whose gradients are hidden.

    Attributes:
        is_on: True if the next step of the optimizer changes nothing. That step sets it
            to False.
        num_steps: number of steps of the optimizer.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Callable[[], list[torch.Tensor]],
    ) -> None:
        self._parameters = parameters
        self._hidden: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self.is_on = False
        self.num_steps = 0
        optimizer.register_step_pre_hook(Hook(self._before, is_weak=True))
        optimizer.register_step_post_hook(Hook(self._after, is_weak=True))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context in which steps of the optimizer apply their gradients."""
        before, self.is_on = self.is_on, False
        try:
            yield
        finally:
            self.is_on = before

    def _before(
        self, _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self.num_steps += 1
        # The first of `args` is the optimizer.
        if any(a is not None for a in (*args[1:2], kwargs.get("closure"))):
            raise ConfigError(
                "optimizer.step(closure) with slack: the closure runs the backward "
                "inside of the step, which then has begun with gradients of an earlier "
                "one; call backward() first and then step() without a closure."
            )
        if self.is_on:
            self._hidden = [(p, p.grad) for p in self._parameters()]
            for parameter, _grad in self._hidden:
                parameter.grad = None

    def _after(self, *_: object) -> None:
        hidden, self._hidden = self._hidden, []
        for parameter, grad in hidden:
            parameter.grad = grad
        self.is_on = False


@dataclass
class _Step:
    """A step of this rank whose update is pending.

    Attributes:
        place: where its buckets are in the ring.
        scale: factor of its loss.
        works: the sums, by index of the bucket.
    """

    place: int
    scale: float
    works: dict[int, _C.AikidoWork] = field(default_factory=dict)


class Delay:
    """The pending updates of one handle. For the training thread only.

    Args:
        slack: number of steps by which updates are delayed, at least 1.
        optimizer: the optimizer of the loop.
        buckets: the buckets of the model.
        scale: returns the factor of the loss in the present step.
    """

    def __init__(
        self,
        slack: int,
        optimizer: torch.optim.Optimizer,
        buckets: ModelBuckets,
        scale: Callable[[], float],
    ) -> None:
        self.slack = slack
        self._buckets = buckets
        self._scale = scale
        self._empty = EmptySteps(optimizer, lambda: buckets.parameters)
        self._ring: dict[int, list[torch.Tensor]] = {}  # by index of the bucket
        self._present = _Step(0, 1.0)
        self._has_begun = False
        self._pending: deque[_Step] = deque()  # the oldest first

    def __len__(self) -> int:
        """Number of pending updates."""
        return len(self._pending)

    def hook(self, handle: "Handle", bucket: GradBucket) -> _Future:
        """The hook of a bucket; its future has the sums of an earlier step."""
        if bucket.index() == 0:
            self._begin(handle.steps)
        buffer = bucket.buffer()
        if not handle._is_laid_out():
            return future_of(handle._reduce(bucket, buffer), buffer, handle._rescue)
        index, present = bucket.index(), self._present
        memory = self._memory(index, buffer)[present.place]
        present.works[index] = handle._reduce(bucket, memory.copy_(buffer))
        due = self._pending[0] if len(self._pending) == self.slack else None
        if bucket.is_last():
            self._end(due)
        if due is not None:
            memory = self._ring[index][due.place]
            return future_of(due.works[index], memory, handle._rescue)
        nothing: _Future = torch.futures.Future()
        nothing.set_result(buffer.zero_())
        return nothing

    def flush(self, handle: "Handle") -> int:
        """Applies the pending updates on all ranks; see `Handle.flush`.

        Raises:
            ConfigError: another rank makes another call instead.
        """
        if self._pending:
            # A rank that applied its updates alone would differ from then on. Any other
            # call of another rank ends the barrier with an error on all ranks.
            try:
                dist.barrier(handle._calls.group)
            except ConfigError as error:
                raise ConfigError(
                    f"flush() or close() with slack, where this rank waits for all "
                    f"ranks in a barrier before it applies {len(self._pending)} "
                    f"updates: {error}. Call it on all ranks, after the same step."
                ) from error
        return self.apply_pending(handle)

    def apply_pending(self, handle: "Handle", timeout_s: float | None = None) -> int:
        """Applies the pending updates in their order, and returns their number.

        Args:
            handle: has this delay.
            timeout_s: to wait for a sum; None: that of the group's calls.
        """
        timeout = [] if timeout_s is None else [timedelta(seconds=timeout_s)]
        count = len(self._pending)
        with self._empty.paused():
            while self._pending:
                step = self._pending.popleft()
                factor = self._scale() / step.scale
                for index, work in step.works.items():
                    work.wait(*timeout)
                    sums = self._buckets[index].scratch
                    sums.copy_(self._ring[index][step.place])
                    if factor != 1.0:
                        sums.mul_(factor)
                handle._user_step.update(self._buckets, handle._audit)
        return count

    def _begin(self, step: int) -> None:
        scale = self._scale()
        # A GradScaler lowers its scale if it leaves out a step.
        is_left_out = scale < self._present.scale
        if self._empty.num_steps == 0 and self._has_begun and not is_left_out:
            raise ConfigError(
                "The loop makes a second backward that reduces gradients before the "
                "first step of the optimizer. With slack each of them ends with the "
                "gradients of an earlier step, and would lose those that lie in .grad. "
                "Have all backwards of a step but the last under no_sync(), and step "
                "the optimizer that register was given."
            )
        self._has_begun = True
        self._present = _Step(step % (self.slack + 1), scale)

    def _end(self, due: _Step | None) -> None:
        present = self._present
        self._pending.append(present)
        self._empty.is_on = due is None
        if due is None:
            return
        self._pending.popleft()
        if due.scale != present.scale:
            after_backward(partial(self._multiply, present.scale / due.scale))

    def _multiply(self, factor: float) -> None:
        """Gives the gradients the scale by which the loop divides them."""
        gradients = [p.grad for p in self._buckets.parameters if p.grad is not None]
        torch._foreach_mul_(gradients, factor)

    def _memory(self, index: int, buffer: torch.Tensor) -> list[torch.Tensor]:
        if index not in self._ring:
            places = range(self.slack + 1)
            self._ring[index] = [torch.empty_like(buffer) for _ in places]
        return self._ring[index]


def delay_of(handle: "Handle", slack: int, number: int) -> Delay | None:
    """The delay of a new handle; None without slack.

    `destroy_process_group` applies the pending updates if nobody has.

    Args:
        handle: with its buckets, its state and the step of the user.
        slack: as for `Delay`, or 0.
        number: of the model on its group.
    """
    if slack == 0:
        return None
    scale = handle._state.gradient_scale
    end = partial(_apply_at_end, weakref.ref(handle))
    call_at_end(handle._backend, f"slack of model {number}", end)
    return Delay(slack, handle._user_step.optimizer, handle._buckets, scale)


# The group keeps this call, and must not keep the handle.
def _apply_at_end(known: "weakref.ref[Handle]", linger: timedelta) -> None:
    handle = known()
    if handle is None or handle._delay is None or sys.exc_info()[0] is not None:
        return
    delay, count = handle._delay, len(handle._delay)
    try:
        delay.apply_pending(handle, linger.total_seconds())
    except Exception as error:
        _log.warning(
            "The last %d updates, which slack had delayed, were not all applied when "
            "the group ended: %s: %s",
            count,
            type(error).__name__,
            error,
        )
