# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sum of the gradients of all members, in buckets, while the backward pass runs.

The hooks on the parameters outlive every change of members, so that the model is never
wrapped again. An error of a call never leaves the backward pass: it is kept until
`finish`, because the loop of the user could not continue with it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from aikido_torch.errors import AikidoError, ConfigError

__all__ = ["Gradients", "Reduce"]

_BUCKET_BYTES = 8 << 20


class _Waits(Protocol):
    def wait(self) -> Any:
        """Blocks until the call has ended; raises its error."""


class Reduce(Protocol):
    """Function that starts the sum of a flat bucket over all members, in place."""

    def __call__(self, bucket: int, flat: torch.Tensor, /) -> _Waits:
        """Starts the sum of `flat`, the bucket with this number."""


@dataclass
class _Bucket:
    parameters: list[torch.nn.Parameter]
    flat: torch.Tensor
    views: list[torch.Tensor]
    num_ready: int = 0
    work: _Waits | None = None

    @staticmethod
    def of(parameters: list[torch.nn.Parameter]) -> "_Bucket":
        first, sizes = parameters[0], [p.numel() for p in parameters]
        flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        pieces = torch.split(flat, sizes)
        views = [v.view(p.shape) for p, v in zip(parameters, pieces, strict=True)]
        return _Bucket(parameters, flat, views)


class Gradients:
    """Buckets of the gradients of a model. For the training thread only.

    Each gradient is multiplied by the part of the step's items that its batch has. So
    the sum over all batches and members is the mean over all items of the step.

    Args:
        parameters: of the model; those without gradients are left alone.
        bucket_bytes: size at which a bucket is full.
        groups: parameters of each bucket; None: buckets are filled in the order of the
            backward pass.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        bucket_bytes: int = _BUCKET_BYTES,
        groups: list[list[torch.nn.Parameter]] | None = None,
    ) -> None:
        # The backward pass reaches the last parameters first.
        found = [p for p in parameters if p.requires_grad][::-1]
        if not found:
            raise ConfigError("elastic.join: the model has no parameter to train.")
        self._buckets = [_Bucket.of(g) for g in groups or _filled(found, bucket_bytes)]
        self._place = {
            p: place for place, b in enumerate(self._buckets) for p in b.parameters
        }
        self._share = 1.0
        self._is_last = False
        self._reduce: Reduce | None = None
        self._kept: Collection[int] | None = None
        self._num_begun = 0
        self._failure: AikidoError | None = None
        self._hooks: list[Any] = []
        for p in found:
            parameter: Any = p  # torch has no types for these two
            self._hooks.append(parameter.register_hook(self._scaled))
            count = parameter.register_post_accumulate_grad_hook(self._count)
            self._hooks.append(count)

    @property
    def buckets(self) -> list[torch.Tensor]:
        """The flat buckets, in the order of their calls."""
        return [bucket.flat for bucket in self._buckets]

    def begin(self, reduce: Reduce, kept: Collection[int] | None = None) -> None:
        """A step begins: forgets everything of the step before, failed or not.

        Args:
            reduce: starts the sum of a bucket.
            kept: buckets whose parameters get a gradient in `finish`; None: all.
        """
        self._reduce, self._failure, self._num_begun = reduce, None, 0
        self._kept = kept
        for bucket in self._buckets:
            bucket.num_ready, bucket.work = 0, None
            for p in bucket.parameters:
                p.grad = None

    def begin_batch(self, share: float, *, is_last: bool) -> None:
        """The next backward pass has this part of the step's items.

        Args:
            share: items of the batch / items of the step on all members.
            is_last: this member has no further batch in the step; buckets are sent as
                soon as they are complete.
        """
        self._share, self._is_last = share, is_last

    def finish(self) -> AikidoError | None:
        """Waits for the sums and writes them to the gradients.

        Returns:
            The first error of a call; None if all sums are complete. After an error the
            gradients are None.
        """
        while self._failure is None and self._num_begun < len(self._buckets):
            self._begin_bucket()
        for bucket in self._buckets:
            if bucket.work is None:
                continue
            try:
                bucket.work.wait()
            except AikidoError as error:
                self._failure = self._failure or error
        for place, bucket in enumerate(self._buckets):
            is_kept = self._kept is None or place in self._kept
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                p.grad = view.clone() if is_kept and not self._failure else None
        self._is_last = False
        return self._failure

    def close(self) -> None:
        """Removes the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def _scaled(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * self._share

    def _count(self, parameter: torch.nn.Parameter) -> None:
        if not self._is_last:
            return
        self._buckets[self._place[parameter]].num_ready += 1
        # All members send the buckets in one order.
        while self._failure is None and self._num_begun < len(self._buckets):
            bucket = self._buckets[self._num_begun]
            if bucket.num_ready < len(bucket.parameters):
                return
            self._begin_bucket()

    def _begin_bucket(self) -> None:
        bucket = self._buckets[self._num_begun]
        for p, view in zip(bucket.parameters, bucket.views, strict=True):
            if p.grad is None:
                view.zero_()
            else:
                view.copy_(p.grad)
        if self._reduce is None:
            raise ConfigError(
                "elastic: backward() ran outside of a step; call it in the loop over "
                "the batches of a step."
            )
        try:
            bucket.work = self._reduce(self._num_begun, bucket.flat)
        except AikidoError as error:
            self._failure = error
        self._num_begun += 1


def _filled(
    parameters: list[torch.nn.Parameter], most_bytes: int
) -> list[list[torch.nn.Parameter]]:
    groups: list[list[torch.nn.Parameter]] = []
    for p in parameters:
        last = groups[-1] if groups else []
        is_alike = bool(last) and (last[0].dtype, last[0].device) == (p.dtype, p.device)
        if is_alike and sum(q.nbytes for q in last) + p.nbytes <= most_bytes:
            last.append(p)
        else:
            groups.append([p])
    return groups
