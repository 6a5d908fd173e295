# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The bucket layout of DistributedDataParallel, to replay committed results."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "Bucket",
    "ModelBuckets",
    "Slice",
    "gradients_from",
    "lay_out",
    "stride_of_gradient",
]

# DDP makes its final buckets at the second forward, with a static graph at the third.
_STRICT_STEPS = {False: 2, True: 3}


@dataclass(frozen=True)
class Slice:
    """Place of one parameter's gradient in its bucket.

    Attributes:
        parameter: the parameter.
        size: shape of the gradient.
        stride: stride of the gradient in the bucket, in elements.
        offset: distance from the beginning of the bucket, in elements.
    """

    parameter: torch.Tensor
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Bucket:
    """One bucket, with memory for a result."""

    scratch: torch.Tensor
    slices: tuple[Slice, ...]


def stride_of_gradient(size: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """The stride that torch gives to the gradient of a parameter, in elements.

    torch and DistributedDataParallel lay out a gradient like its parameter if the
    parameter fills its memory without gaps or overlaps, and row by row otherwise.

    Args:
        size: of the parameter.
        stride: of the parameter, in elements.
    """
    num_elements = 1
    for step, length in sorted(zip(stride, size, strict=True)):
        if length > 1 and step != num_elements:
            return torch.empty(tuple(size), device="meta").stride()
        num_elements *= length
    return tuple(stride)


def lay_out(bucket: GradBucket) -> Bucket:
    """Remembers the layout of `bucket` without its contents.

    `bucket.gradients()` are views with the right sizes and offsets. But their strides
    are always row-major, also if the values have another layout.
    """
    buffer = bucket.buffer()
    slices = tuple(
        Slice(
            parameter=parameter,
            size=gradient.size(),
            stride=stride_of_gradient(gradient.size(), parameter.stride()),
            offset=int(gradient.storage_offset() - buffer.storage_offset()),
        )
        for parameter, gradient in zip(
            bucket.parameters(), bucket.gradients(), strict=True
        )
    )
    return Bucket(scratch=torch.empty_like(buffer), slices=slices)


@contextmanager
def gradients_from(
    buckets: list[Bucket],
    *,
    are_views: bool,
    unused: set[int],
    others: Iterable[torch.Tensor] = (),
) -> Iterator[None]:
    """Context in which parameters have the gradients that lie in the buckets' memory.

    Args:
        buckets: all buckets of a model.
        are_views: True if DistributedDataParallel makes gradients views of its buckets.
            Then they also lie in memory as they would after a backward. Otherwise a
            norm could be summed in another order, because the alignment differs.
        unused: ids of parameters that never get a gradient.
        others: further parameters that the optimizer steps. If they lie in no bucket,
            they have no gradient.
    """
    slices = [(s, b.scratch) for b in buckets for s in b.slices]
    own = {id(p): (p, p.grad) for p in [*others, *(s.parameter for s, _ in slices)]}
    try:
        for parameter, _ in own.values():
            parameter.grad = None
        for s, scratch in slices:
            if id(s.parameter) not in unused:
                s.parameter.grad = _gradient(s, scratch, is_view=are_views)
        yield
    finally:
        for parameter, grad in own.values():
            parameter.grad = grad


def _gradient(s: Slice, scratch: torch.Tensor, *, is_view: bool) -> torch.Tensor:
    if is_view:
        return scratch.as_strided(s.size, s.stride, s.offset)
    # DistributedDataParallel reads the result of a hook in the layout that the
    # parameter has at that moment, even if the bucket was written in another layout.
    stride = stride_of_gradient(s.size, s.parameter.stride())
    view = scratch.as_strided(s.size, stride, s.offset)
    memory = torch.empty_strided(s.size, stride, dtype=view.dtype, device=view.device)
    return memory.copy_(view)


class ModelBuckets:
    """The buckets of a model, as its last strict step has laid them out.

    DistributedDataParallel may lay its buckets out anew in each strict step. Their
    layout is final after the last one, and results can be replayed from then on. For
    the thread that trains.

    Args:
        are_views: as in `gradients_from`.
        final_at: the first step whose layout is final. No step before it is skipped or
            delayed.

    Attributes:
        final_at: the argument.
        parameter_ids: ids of the parameters in the buckets.
    """

    def __init__(self, *, are_views: bool, final_at: int) -> None:
        self._are_views = are_views
        self.final_at = final_at
        self._by_index: dict[int, Bucket] = {}
        self._unused: set[int] = set()
        self.parameter_ids: set[int] = set()

    @classmethod
    def of(cls, model: DistributedDataParallel, first_step: int) -> "ModelBuckets":
        """The buckets of a model whose first step has this number."""
        return cls(
            are_views=bool(model.gradient_as_bucket_view),
            final_at=first_step + _STRICT_STEPS[bool(model.static_graph)],
        )

    def __len__(self) -> int:
        return len(self._by_index)

    def __getitem__(self, index: int) -> Bucket:
        return self._by_index[index]

    @property
    def nbytes(self) -> int:
        """Size of all gradients in the buckets."""
        return sum(bucket.scratch.nbytes for bucket in self._by_index.values())

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The parameters whose gradients lie in the buckets."""
        return [s.parameter for s in self._slices()]

    def in_order(self) -> list[Bucket]:
        """The buckets in the order in which they are reduced."""
        return [self._by_index[index] for index in sorted(self._by_index)]

    def lay_out(self, bucket: GradBucket) -> None:
        """A hook of a strict step has got `bucket`."""
        self._by_index[bucket.index()] = lay_out(bucket)

    def end_strict_step(self, last_index: int) -> None:
        """The bucket `last_index` was the last of a strict step."""
        # The rebuild of buckets may have left fewer of them.
        for index in [i for i in self._by_index if i > last_index]:
            del self._by_index[index]
        self.parameter_ids = {id(s.parameter) for s in self._slices()}

    def note_unused(self) -> None:
        """Call it after the backward of a strict step.

        Some parameters may never have a gradient, which a bucket cannot show.
        """
        self._unused = {
            id(s.parameter) for s in self._slices() if s.parameter.grad is None
        }

    def gradients(self, others: Iterable[torch.Tensor]) -> AbstractContextManager[None]:
        """Context of `gradients_from` for these buckets and `others`."""
        return gradients_from(
            list(self._by_index.values()),
            are_views=self._are_views,
            unused=self._unused,
            others=others,
        )

    def _slices(self) -> list[Slice]:
        return [s for bucket in self._by_index.values() for s in bucket.slices]
