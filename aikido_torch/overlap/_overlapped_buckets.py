# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Buckets that are reduced during computation, and stepped when their sum is complete.

States of a bucket:

```text
fills  -> sent -> due -> stepped -> fills
```

```text
fills    gradients are taken, on any thread that runs a backward
sent     the bucket is being reduced; all ranks send in the order of the layout
due      step() was called; the optimizer's options of that moment are stored
stepped  done when the parameters are needed, or when the sum is complete
```

Parameters are marked (_awaited.py) while their gradient is being summed and while their
step is due, so that a read of either waits. Gradients that the user has waited for
belong to the user. If a backward follows instead of a step, the buckets start again
with the present values of `.grad`, on all ranks.
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
from aikido_torch.errors import ConfigError
from aikido_torch.overlap._awaited import mark, unmark
from aikido_torch.overlap._flat_bucket import FlatBucket
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._partial_step import (
    Values,
    needs_whole_step,
    step_part,
    values_of,
)

__all__ = ["Bucket", "Sums"]

_GROUP_TIMEOUT = timedelta(milliseconds=-1)
_MEAN = dist.ReduceOp(dist.ReduceOp.AVG)
_SUM = dist.ReduceOp(dist.ReduceOp.SUM)
_LEAST_URGENT = 1000  # all later places get this priority


@dataclass
class Bucket:
    """One bucket of a model, with its sum if that is running."""

    flat: FlatBucket
    priority: int
    work: _C.AikidoWork | None = None
    sent_s: float = 0.0
    values: Values | None = None  # set while the step is due
    versions: tuple[int, ...] = ()  # versions of its parameters at that moment

    def versions_now(self) -> tuple[int, ...]:
        return tuple(p._version for p in self.flat.parameters)


class Reduction:
    """The way in which the buckets of one layout are reduced.

    Args:
        backend: backend of the group.
        policy: policy of the reductions.
        is_strict: True for sums of scaled gradients, which have the same bits as in
            DistributedDataParallel; False for means of the contributors.

    Attributes:
        scale: factor of this rank's gradients.
    """

    def __init__(
        self, backend: _C.AikidoBackend, policy: _C.PolicyOptions, *, is_strict: bool
    ) -> None:
        self._backend = backend
        self._policy = policy
        _, self._size = backend.place
        self._op = _SUM if is_strict else _MEAN
        self.scale = 1 / self._size if is_strict else 1.0

    def start(self, buffer: torch.Tensor, priority: int) -> _C.AikidoWork:
        """Starts the reduction of one bucket.

        Raises:
            ConfigError: the group has another number of members now.
        """
        _, size = self._backend.place
        if size != self._size:
            raise ConfigError(
                f"OverlappedDataParallel: the group has {size} members now and had "
                f"{self._size} when the module was wrapped, whose mean was taken; "
                "close() and wrap it again after reconfigure."
            )
        return self._backend.all_reduce(
            buffer, self._op, self._policy, priority, _GROUP_TIMEOUT
        )


@dataclass(slots=True)
class StepProgress:
    """Part of the present step that is done. Each step begins with a new object.

    Attributes:
        next: index of the next bucket to send.
        has_taken: True if a gradient was taken since the last step.
        is_released: True if the user has waited for the gradients, which are means now.
    """

    next: int = 0
    has_taken: bool = False
    is_released: bool = False


class Sums:
    """The buckets of one model. Any thread may call `take`, one thread at a time.

    Args:
        parameters: all trained parameters, by name.
        optimizer: the user's optimizer.
        step: `optimizer.step` as it was before it was replaced.
        backend: backend of the group.
        wait: called with each function that waits, to exclude its time from computing.
            That function returns when its sum ended, in seconds of time.monotonic, or
            None.
        on_sum: called with a bucket's bytes, its send time in seconds, and its call.

    Attributes:
        num_due: number of buckets that wait for their step.
        signal: True if this rank sets the signal in the buckets that it sends from now
            on.
        triggers: names of the parameters whose gradients must be passed to `take`.
        was_signalled: True if a rank has set the signal in the last step that is done.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
        step: Callable[[], object],
        backend: _C.AikidoBackend,
        *,
        wait: Callable[[Callable[[], float | None]], None],
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
        self._progress = StepProgress()
        self._is_stepping = False
        self.num_due = 0
        self.signal = False
        self.was_signalled = False

    def lay_out(
        self, layout: Layout, policy: _C.PolicyOptions, *, is_strict: bool
    ) -> None:
        """Makes new buckets. Requires: no bucket is sent or due.

        Args:
            layout: names of the parameters of each bucket, and priorities.
            policy, is_strict: as in `Reduction`.
        """
        self._reduction = Reduction(self._backend, policy, is_strict=is_strict)
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
        self.triggers = frozenset(self._parameters)

    # ---- gradients ----

    def begin_forward(self) -> None:
        """The module's forward begins, with gradients enabled."""

    def begin_backward(self) -> None:
        """A backward begins that ends with a call of `end_backward`."""

    def take(self, name: str) -> None:
        """The gradient of a parameter is ready.

        Raises:
            ConfigError: the parameter has a gradient already, or was used before its
                last step was done.
        """
        parameter = self._parameters[name]
        with self._lock:
            self.check_done(name)
            if self._progress.is_released:
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
            bucket.flat.take(parameter, self._reduction.scale)
            mark([parameter])
            progress = self._progress
            progress.has_taken = True
            while progress.next < len(self._buckets):
                bucket = self._buckets[progress.next]
                # A bucket that is due is full too, but with the values that were sent
                # before.
                if bucket.values is not None or not bucket.flat.is_full:
                    break
                self._send_next()

    def check_done(self, name: str) -> None:
        """Raises ConfigError if the last step of a parameter is not done yet."""
        if self._bucket_of[id(self._parameters[name])].values is not None:
            raise ConfigError(
                f"OverlappedDataParallel: {name} has a gradient, but its last step "
                "is still to come: a forward has used it and nobody noticed; call "
                "the model through OverlappedDataParallel, or synchronize() before."
            )

    def send_rest(self) -> None:
        """Sends all remaining buckets. Missing gradients count as zeros of this
        rank.
        """
        with self._lock:
            # Other ranks may have had a backward since, but not this rank.
            if self._progress.is_released and self._are_dropped():
                self._start_anew()
            while self._progress.next < len(self._buckets):
                bucket = self._buckets[self._progress.next]
                self._finish(bucket)  # the bucket was not used since the last step
                bucket.flat.complete(self._reduction.scale)
                self._send_next()

    def end_backward(self) -> None:
        """Sends the remaining buckets, if the backward has produced gradients."""
        with self._lock:
            if self._progress.has_taken:
                self.send_rest()

    def _send_next(self) -> None:
        progress = self._progress
        bucket = self._buckets[progress.next]
        if progress.next == 0 and self.signal:
            bucket.flat.signal(0)
        progress.next += 1
        bucket.sent_s = time.monotonic()
        bucket.work = self._reduction.start(bucket.flat.buffer, bucket.priority)

    def _wait_for(self, bucket: Bucket) -> None:
        work = bucket.work
        assert work is not None

        def call() -> float | None:
            work.wait()
            outcome = work.outcome()
            if outcome is None:
                return None
            return bucket.sent_s + outcome.duration_ms / 1e3

        self._wait(call)

    def wait_for_gradients(self) -> None:
        """Sends the remaining buckets and waits: `.grad` is the mean, and may be
        changed.
        """
        if self.num_due == len(self._buckets):
            return  # no backward since the last step
        self.send_rest()
        for bucket in self._by_priority:
            self._wait_for(bucket)
            unmark(bucket.flat.parameters)
            bucket.flat.release()
        self._progress.is_released = True

    def _are_dropped(self) -> bool:
        return all(p.grad is None for p in self._parameters.values())

    def _start_anew(self) -> None:
        """Discards sums that were waited for but not used by a step."""
        for bucket in self._buckets:
            assert bucket.work is not None
            self._on_sum(bucket.flat.buffer.nbytes, bucket.sent_s, bucket.work)
            bucket.flat.restart()
            bucket.work = None
        self._progress = StepProgress()

    # ---- steps ----

    def ask_for_step(self) -> None:
        """Makes the step of all parameters due."""
        self.send_rest()
        is_whole = self._progress.is_released or needs_whole_step(self._optimizer)
        if is_whole:
            self.wait_for_gradients()
        # A whole step reports itself.
        with contextlib.nullcontext() if is_whole else telling(self._optimizer):
            values = values_of(self._optimizer)
            for bucket in self._buckets:
                unmark(bucket.flat.parameters)
                bucket.flat.detach()
                bucket.values = values
                bucket.versions = bucket.versions_now()
                mark(bucket.flat.parameters)
            self.num_due = len(self._buckets)
            self._progress = StepProgress()
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
        """Does the due steps of these parameters, after waiting for their sums."""
        if self._is_stepping:
            return
        for parameter in parameters:
            self._finish(self._bucket_of[id(parameter)])

    def read(self, parameter: torch.Tensor, *, of_gradient: bool) -> bool:
        """Waits until the value or the gradient of a parameter may be read.

        Returns:
            True if it has waited for gradients, as `wait_for_gradients` does.
        """
        if self._is_stepping:
            return False
        if not of_gradient:
            self.finish([parameter])
            return False
        is_in_backward = torch._C._current_graph_task_id() != -1
        is_due = self._bucket_of[id(parameter)].values is not None
        # If the step is due, `.grad` is None. In a backward it is this rank's own
        # gradient.
        if is_due or is_in_backward:
            return False
        self.wait_for_gradients()
        return True

    def finish_all(self) -> None:
        for bucket in self._by_priority:
            self._finish(bucket)

    def _finish(self, bucket: Bucket) -> None:
        while bucket.values is not None:
            due = [b for b in self._by_priority if b.values is not None]
            # Instead of waiting, step a bucket whose sum is complete.
            is_here = (
                bucket if _is_here(bucket) else next(filter(_is_here, due), bucket)
            )
            self._step_bucket(is_here)

    def _step_bucket(self, bucket: Bucket) -> None:
        values = bucket.values
        assert values is not None
        self._wait_for(bucket)
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
        # The caller may be in the middle of a forward. Modes of that forward must not
        # affect the step.
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
        """Waits for all sums; `.grad` is the mean if no step was asked for yet.

        If a sum fails, its parameters keep their values and their gradients are None.
        In any case no bucket is due afterwards.
        """
        try:
            self.finish_all()
            if self._progress.has_taken and not self._progress.is_released:
                self.wait_for_gradients()
        finally:
            for bucket in self._buckets:
                unmark(bucket.flat.parameters)
                bucket.flat.let_go()
                bucket.work = bucket.values = None
            self.num_due = 0
            self._progress = StepProgress()

    # ---- steps of others ----

    def replay(self, apply: Callable[[], object] | None) -> bool:
        """Does one step that the other ranks did while this rank was late.

        Requires: no bucket is due, and all that were sent were waited for.

        Args:
            apply: asks for the step when `.grad` is the mean, or omits it; None: the
                step is asked for here.

        Returns:
            False if no result of such a step has been received.
        """
        if self._progress.is_released:  # the last step was omitted
            self._start_anew()
        if self._backend.committed_ahead < len(self._buckets):
            return False
        for bucket in self._buckets:
            bucket.flat.complete(self._reduction.scale)
        # The results have been received, so these calls send nothing and return at
        # once.
        while self._progress.next < len(self._buckets):
            self._send_next()
        if apply is None:
            self.ask_for_step()
        else:
            self.wait_for_gradients()
            apply()
        self.finish_all()
        if self._progress.is_released:  # this step was omitted
            self._start_anew()
            for parameter in self._parameters.values():
                parameter.grad = None
        return True


def _is_here(bucket: Bucket) -> bool:
    return bucket.work is not None and bucket.work.is_completed()
