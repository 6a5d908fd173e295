# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Buckets that are summed and awaited within the backward, then stepped at once.

Note [plain buckets cost as much as DDP]
Sums that continue in the next forward need a hook for each module and each parameter,
and an optimizer step for each bucket. In Python these take about 0.1 ms per layer on a
core that has just woken up, which is more than a small model gains. Plain buckets need
one hook for each bucket, on the parameter whose gradient is expected last. If the other
gradients of the bucket are ready as well, the hook sends the bucket. Otherwise the
bucket is sent when the backward ends.

A gradient in `.grad` may belong to an earlier backward: under `no_sync()`, or if a step
was omitted. So buckets are sent before the end of the backward only if no parameter had
a gradient when the backward began.
"""

from functools import cached_property

import torch

from aikido_torch import _C
from aikido_torch.overlap._awaited import mark, unmark
from aikido_torch.overlap._checks import check_gradient
from aikido_torch.overlap._layout import Layout
from aikido_torch.overlap._overlapped_buckets import Bucket, StepProgress, Sums

__all__ = ["PlainSums"]


class PlainSums(Sums):
    """`Sums` that end with the backward, so that no bucket is due after a step.

    After the backward `.grad` is the mean of all ranks, and may be read, changed and
    dropped as with DistributedDataParallel.
    """

    # True if `end_backward` will be called for this backward.
    _is_watched = False
    _is_fresh = False  # no parameter had a gradient when this backward began
    _is_summed = False  # since the last step
    _is_between_steps = True

    @cached_property
    def _all(self) -> tuple[torch.Tensor, ...]:
        """All trained parameters."""
        return tuple(self._parameters.values())

    def lay_out(
        self, layout: Layout, policy: _C.PolicyOptions, *, is_strict: bool
    ) -> None:
        super().lay_out(layout, policy, is_strict=is_strict)
        self.triggers = frozenset(names[-1] for names in layout.buckets)

    # ---- forward and backward ----

    def begin_forward(self) -> None:
        self._is_between_steps = False

    def begin_backward(self) -> None:
        """A backward begins that ends with a call of `end_backward`."""
        self._is_watched = True
        self._is_fresh = all(p.grad is None for p in self._all)

    def take(self, name: str) -> None:
        if name not in self.triggers:
            return
        with self._lock:
            progress = self._progress
            progress.has_taken = True
            # No end of this backward is announced, so reads of gradients have to wait.
            if not self._is_watched:
                mark(self._all)
            if not self._is_fresh:
                return
            bucket = self._bucket_of[id(self._parameters[name])]
            if bucket.flat.is_full:
                bucket.flat.check_filled()
            if all(p.grad is not None for p in bucket.flat.parameters):
                self._fill(bucket)
            while progress.next < len(self._buckets):
                if not self._buckets[progress.next].flat.is_full:
                    break
                self._send_next()

    def check_done(self, name: str) -> None:
        """Does nothing, because no bucket is ever due."""

    def _fill(self, bucket: Bucket) -> None:
        for name, parameter in zip(
            bucket.flat.names, bucket.flat.parameters, strict=True
        ):
            if parameter.grad is not None:
                check_gradient(name, parameter)
        bucket.flat.fill(self._reduction.scale)

    def end_backward(self) -> None:
        with self._lock:
            has_taken = self._progress.has_taken or (
                self._is_fresh and any(p.grad is not None for p in self._all)
            )
            if has_taken:
                self._sum_up()
            else:
                self._is_watched = self._is_fresh = False

    def send_rest(self) -> None:
        """Sends all remaining buckets, and waits for all sums as well."""
        with self._lock:
            unmark(self._all)  # the following code reads gradients itself
            if not self._is_summed or self._progress.has_taken or self._are_dropped():
                self._sum_up()

    def _sum_up(self) -> None:
        unmark(self._all)
        while self._progress.next < len(self._buckets):
            bucket = self._buckets[self._progress.next]
            if not bucket.flat.is_full:
                self._fill(bucket)
            self._send_next()
        for bucket in self._buckets:
            self._wait_for(bucket)
        for bucket in self._buckets:
            assert bucket.work is not None
            bucket.flat.check_filled()
            bucket.flat.attach()
            self._on_sum(bucket.flat.buffer.nbytes, bucket.sent_s, bucket.work)
            bucket.work = None
        self.was_signalled = bool(self._buckets[0].flat.signals.any())
        for bucket in self._buckets:
            bucket.flat.empty()
        self._progress = StepProgress()
        self._is_summed = True
        self._is_watched = self._is_fresh = False

    def wait_for_gradients(self) -> None:
        if not self._is_between_steps:
            self.send_rest()

    # ---- steps ----

    def ask_for_step(self) -> None:
        self.send_rest()
        self._step()
        for parameter in self._all:
            parameter.grad = None
        self._is_summed = False
        self._is_between_steps = True

    def end(self) -> None:
        try:
            if self._progress.has_taken:
                self._sum_up()
        finally:
            unmark(self._all)
            for bucket in self._buckets:
                bucket.flat.let_go(has_sums=self._is_summed)
                bucket.work = None
            self._progress = StepProgress()
