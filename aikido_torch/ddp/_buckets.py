# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The buckets as DistributedDataParallel laid them out, to replay committed results."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import GradBucket

__all__ = ["Bucket", "Slice", "gradients_from", "lay_out"]


@dataclass(frozen=True)
class Slice:
    """Where the gradient of one parameter lies in its bucket."""

    parameter: torch.Tensor
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Bucket:
    """One bucket, with memory for a result."""

    scratch: torch.Tensor
    slices: tuple[Slice, ...]


def lay_out(bucket: GradBucket) -> Bucket:
    """Remembers `bucket` without its contents."""
    buffer = bucket.buffer()
    slices = tuple(
        Slice(
            parameter=parameter,
            size=gradient.size(),
            stride=gradient.stride(),
            offset=int(gradient.storage_offset() - buffer.storage_offset()),
        )
        for parameter, gradient in zip(
            bucket.parameters(), bucket.gradients(), strict=True
        )
    )
    return Bucket(scratch=torch.empty_like(buffer), slices=slices)


@contextmanager
def gradients_from(
    buckets: list[Bucket], *, are_views: bool, unused: set[int]
) -> Iterator[None]:
    """Within it the parameters have the gradients that lie in the buckets' memory.

    Args:
        buckets: all of a model.
        are_views: whether DistributedDataParallel gives gradients as views of its
            buckets. They lie in memory then as they would after a backward: a norm may
            be summed in another order where the alignment differs.
        unused: ids of parameters that never get a gradient.
    """
    slices = [(s, b.scratch) for b in buckets for s in b.slices]
    own = [s.parameter.grad for s, _ in slices]
    try:
        for s, scratch in slices:
            view = scratch.as_strided(s.size, s.stride, s.offset)
            if id(s.parameter) in unused:
                s.parameter.grad = None
            else:
                s.parameter.grad = view if are_views else _apart(s, view)
        yield
    finally:
        for (s, _), grad in zip(slices, own, strict=True):
            s.parameter.grad = grad


def _apart(s: Slice, view: torch.Tensor) -> torch.Tensor:
    memory = torch.empty_strided(s.size, s.stride, dtype=view.dtype, device=view.device)
    return memory.copy_(view)
