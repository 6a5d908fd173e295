# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Buckets that are reduced while others compute, and stepped when their sum is here.

A bucket goes through

    fills       gradients are taken, on whichever thread a backward runs
    sent        it is being reduced; all ranks send in the order of the layout
    due         a step was asked for, with the optimizer's values of then
    and is stepped when somebody needs it and its sum is here, then it fills again.
    Parameters are marked (_awaited.py) while their gradient is being summed, and while
    their step is due: a read of either waits.
    Gradients that were waited for belong to the user: a backward instead of a step
    begins anew with what is in `.grad` by then, on all ranks.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from aikido_torch import _C
from aikido_torch._steps import in_pieces, telling
from aikido_torch.ddp._awaited import mark, unmark
from aikido_torch.ddp._flat import FlatBucket
from aikido_torch.ddp._layout import Layout
from aikido_torch.ddp._parts import Values, needs_whole_step, step_part, values_of
from aikido_torch.errors import ConfigError

__all__ = ["Bucket", "Sums"]

_GROUP_TIMEOUT = timedelta(milliseconds=-1)
_MEAN = dist.ReduceOp(dist.ReduceOp.AVG)
_SUM = dist.ReduceOp(dist.ReduceOp.SUM)
_LEAST_URGENT = 1000  # all behind that are equal


@dataclass
class Bucket:
    """Of one model, with its sum if that is under way."""

    flat: FlatBucket
    priority: int
    work: _C.AikidoWork | None = None
    sent_s: float = 0.0
    values: Values | None = None  # it is due, with these
    versions: tuple[int, ...] = ()  # of its parameters then

    def versions_now(self) -> tuple[int, ...]:
        return tuple(p._version for p in self.flat.parameters)


class Sums:
    """The buckets of one model. `take` may be called by any thread, one at a time.

    Args:
        parameters: by name; all that are trained.
        step: of the optimizer, as it was before anybody put another one in its place.
        wait: called with what waits, which is no computing.
        on_sum: called with the bytes of a bucket, when it was sent, and its reduction.

    Attributes:
        num_due: buckets that wait for their step.
        signal: whether this rank signals to all with what it sends from now on.
        was_signalled: some rank has signalled with the last step that is done.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
        step: Callable[[], object],
        backend: _C.AikidoBackend,
        *,
        wait: Callable[[Callable[[], object]], None],
        on_sum: Callable[[int, float, _C.AikidoWork], None],
    ) -> None:
        self._parameters = dict(parameters)
        self._device_type = next(iter(parameters.values())).device.type
        self._optimizer = optimizer
        self._step = step
        self._backend = backend
        self._wait = wait
        self._on_sum = on_sum
        self._lock = threading.RLock()
        self._buckets: list[Bucket] = []
        self._next = 0  # to be sent
        self._is_stepping = False
        self._is_released = False
        self._has_taken = False  # since the last step
        self.num_due = 0
        self.signal = False
        self.was_signalled = False

    def lay_out(
        self, layout: Layout, policy: _C.PolicyOptions, *, is_strict: bool
    ) -> None:
        """Makes the buckets anew. Requires: nothing is sent or due.

        Args:
            policy: of the reductions.
            is_strict: they are sums of scaled gradients, as DistributedDataParallel has
                them, and have the same bits; else means of those that contributed.
        """
        self._policy = policy
        _, self._size = self._backend.place
        self._scale = 1 / self._size if is_strict else 1.0
        self._op = _SUM if is_strict else _MEAN
        self._buckets = [
            Bucket(
                FlatBucket(
                    names,
                    [self._parameters[name] for name in names],
                    num_signals=1 if number == 0 else 0,
                ),
                priority=-min(place, _LEAST_URGENT),
            )
            for number, (names, place) in enumerate(
                zip(layout.buckets, layout.places, strict=True)
            )
        ]
        self._bucket_of = {id(p): b for b in self._buckets for p in b.flat.parameters}
        self._by_priority = sorted(self._buckets, key=lambda b: -b.priority)

    # ---- gradients ----

    def begin_forward(self) -> None:
        """The module's forward begins, with gradients."""

    def begin_backward(self) -> None:
        """A backward begins whose end will be told by `end_backward`."""

    def take(self, name: str) -> None:
        """The gradient of a parameter is ready.

        Raises:
            ConfigError: it is there already, or the parameter was used before its last
                step.
        """
        parameter = self._parameters[name]
        with self._lock:
            self.check_done(name)
            if self._is_released:
                self._start_anew()
            bucket = self._bucket_of[id(parameter)]
            if bucket.flat.has(parameter) or bucket.work is not None:
                raise ConfigError(
                    f"OverlappedDataParallel: {name} has a gradient for the second "
                    "time since the last step, and the first one is being summed; "
                    "have all backwards of a step but the last under no_sync(), and "
                    "where all ranks leave a step out, wait_for_gradients() before "
                    "zero_grad()."
                )
            bucket.flat.take(parameter, self._scale)
            mark([parameter])
            self._has_taken = True
            while self._next < len(self._buckets):
                bucket = self._buckets[self._next]
                # One that is due is full as well, of what was sent before.
                if bucket.values is not None or not bucket.flat.is_full:
                    break
                self._send_next()

    def check_done(self, name: str) -> None:
        """Raises ConfigError if the last step of a parameter is still to come."""
        if self._bucket_of[id(self._parameters[name])].values is not None:
            raise ConfigError(
                f"OverlappedDataParallel: {name} has a gradient, but its last step "
                "is still to come: a forward has used it and nobody noticed; call "
                "the model through OverlappedDataParallel, or synchronize() before."
            )

    def send_rest(self) -> None:
        """What is missing has no gradient on this rank; the others may have one."""
        with self._lock:
            # Others may have had a backward since, and this rank none.
            if self._is_released and self._are_dropped():
                self._start_anew()
            while self._next < len(self._buckets):
                bucket = self._buckets[self._next]
                self._finish(bucket)  # it was not used since the last step
                bucket.flat.complete(self._scale)
                self._send_next()

    def end_backward(self) -> None:
        """Sends the rest, if the backward has had gradients for parameters."""
        with self._lock:
            if self._has_taken:
                self.send_rest()

    def _send_next(self) -> None:
        _, size = self._backend.place
        if size != self._size:
            raise ConfigError(
                f"OverlappedDataParallel: the group has {size} members now and had "
                f"{self._size} when the module was wrapped, whose mean was taken; "
                "close() and wrap it again after reconfigure."
            )
        bucket = self._buckets[self._next]
        if self._next == 0 and self.signal:
            bucket.flat.signal(0)
        self._next += 1
        bucket.sent_s = time.monotonic()
        bucket.work = self._backend.all_reduce(
            bucket.flat.buffer, self._op, self._policy, bucket.priority, _GROUP_TIMEOUT
        )

    def wait_for_gradients(self) -> None:
        """Sends the rest and waits: `.grad` is the mean, and may be changed."""
        if self.num_due == len(self._buckets):
            return  # all between two steps
        self.send_rest()
        for bucket in self._by_priority:
            assert bucket.work is not None
            self._wait(bucket.work.wait)
            unmark(bucket.flat.parameters)
            bucket.flat.release()
        self._is_released = True

    def _are_dropped(self) -> bool:
        return all(p.grad is None for p in self._parameters.values())

    def _start_anew(self) -> None:
        """The sums that were waited for get no step."""
        for bucket in self._buckets:
            assert bucket.work is not None
            self._on_sum(bucket.flat.buffer.nbytes, bucket.sent_s, bucket.work)
            bucket.flat.restart()
            bucket.work = None
        self._next = 0
        self._is_released = self._has_taken = False

    # ---- steps ----

    def ask_for_step(self) -> None:
        """The step of all parameters is due."""
        self.send_rest()
        is_whole = self._is_released or needs_whole_step(self._optimizer)
        if is_whole:
            self.wait_for_gradients()
        # A whole step tells them by itself.
        with contextlib.nullcontext() if is_whole else telling(self._optimizer):
            values = values_of(self._optimizer)
            for bucket in self._buckets:
                unmark(bucket.flat.parameters)
                bucket.flat.detach()
                bucket.values = values
                bucket.versions = bucket.versions_now()
                mark(bucket.flat.parameters)
            self.num_due = len(self._buckets)
            self._next = 0
            self._is_released = self._has_taken = False
            if is_whole:
                self._step_whole()

    def _step_whole(self) -> None:
        for bucket in self._buckets:
            unmark(bucket.flat.parameters)
            bucket.flat.attach()
        self._step_within(self._step)
        for bucket in self._buckets:
            self._clear(bucket)

    def finish(self, parameters: Iterable[torch.Tensor]) -> None:
        """Waits for what is due of these."""
        if self._is_stepping:
            return
        for parameter in parameters:
            self._finish(self._bucket_of[id(parameter)])

    def read(self, parameter: torch.Tensor, *, of_gradient: bool) -> bool:
        """Waits until the value or the gradient of a parameter may be read.

        Returns:
            Whether this has waited for gradients, as `wait_for_gradients` does.
        """
        if self._is_stepping:
            return False
        if not of_gradient:
            self.finish([parameter])
            return False
        is_in_backward = torch._C._current_graph_task_id() != -1
        is_due = self._bucket_of[id(parameter)].values is not None
        if is_due or is_in_backward:  # it is None; it is that of this rank, so far
            return False
        self.wait_for_gradients()
        return True

    def finish_all(self) -> None:
        for bucket in self._by_priority:
            self._finish(bucket)

    def _finish(self, bucket: Bucket) -> None:
        while bucket.values is not None:
            due = [b for b in self._by_priority if b.values is not None]
            # Rather than wait, step what is here.
            is_here = (
                bucket if _is_here(bucket) else next(filter(_is_here, due), bucket)
            )
            self._step_bucket(is_here)

    def _step_bucket(self, bucket: Bucket) -> None:
        values, work = bucket.values, bucket.work
        assert values is not None
        assert work is not None
        self._wait(work.wait)
        unmark(bucket.flat.parameters)
        self._check_unwritten(bucket)
        stepped = bucket.flat.attach()
        if stepped:
            with in_pieces(self._optimizer):
                self._step_within(
                    lambda: step_part(self._optimizer, self._step, stepped, values)
                )
        self._clear(bucket)

    def _check_unwritten(self, bucket: Bucket) -> None:
        now = bucket.versions_now()
        for name, was, is_now in zip(
            bucket.flat.names, bucket.versions, now, strict=True
        ):
            if was != is_now:
                raise ConfigError(
                    f"OverlappedDataParallel: {name} was written to behind "
                    "optimizer.step(), whose step of it was still to come; call "
                    "synchronize() of the model before parameters are changed."
                )

    def _step_within(self, step: Callable[[], object]) -> None:
        # It may be in the midst of a forward, whose modes are none of its business.
        self._is_stepping = True
        try:
            with (
                torch.inference_mode(False),
                torch.autocast(self._device_type, enabled=False),
                _disable_current_modes(),
            ):
                step()
        finally:
            self._is_stepping = False

    def _clear(self, bucket: Bucket) -> None:
        assert bucket.work is not None
        if bucket is self._buckets[0]:
            self.was_signalled = bool(bucket.flat.signals.any())
        self._on_sum(bucket.flat.buffer.nbytes, bucket.sent_s, bucket.work)
        bucket.flat.clear()
        bucket.work = bucket.values = None
        self.num_due -= 1

    def end(self) -> None:
        """Waits for all; `.grad` is the mean where a step was not asked for yet.

        Where a sum fails, the parameters that it would have stepped are as before, the
        gradients that it would have been are None, and nothing is due all the same.
        """
        try:
            self.finish_all()
            if self._has_taken and not self._is_released:
                self.wait_for_gradients()
        finally:
            for bucket in self._buckets:
                unmark(bucket.flat.parameters)
                bucket.flat.let_go()
                bucket.work = bucket.values = None
            self.num_due = self._next = 0
            self._is_released = self._has_taken = False

    # ---- steps of others ----

    def replay(self, apply: Callable[[], object] | None) -> bool:
        """Steps as the others did while this rank was late. False: they did not.

        Requires: nothing is due, and what is sent was waited for.

        Args:
            apply: asks for the step, once `.grad` is the mean, or leaves it out; None:
                the step is asked for here.
        """
        if self._is_released:  # the last step was left out
            self._start_anew()
        if self._backend.committed_ahead < len(self._buckets):
            return False
        for bucket in self._buckets:
            bucket.flat.complete(self._scale)
        # The results are here, so these send nothing and return at once.
        while self._next < len(self._buckets):
            self._send_next()
        if apply is None:
            self.ask_for_step()
        else:
            self.wait_for_gradients()
            apply()
        self.finish_all()
        if self._is_released:  # this one was left out
            self._start_anew()
            for parameter in self._parameters.values():
                parameter.grad = None
        return True


def _is_here(bucket: Bucket) -> bool:
    return bucket.work is not None and bucket.work.is_completed()
