# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Late gradients that a rank adds to those of its next step (`late="carry"`)."""

from collections import defaultdict

from torch._C._distributed_c10d import GradBucket

from aikido_torch import _C
from aikido_torch.straggler import Carry

__all__ = ["Carrying"]


class Carrying:
    """Late gradients of one handle. For the training thread only.

    Args:
        rank: this rank in the model's group.
        is_on: True if late gradients are carried; otherwise they are lost.

    Attributes:
        is_on: the argument.
        carries: the late gradients by index of the bucket.
        num_steps: own steps to which a late gradient was added.
        scale: factor of the loss in the present step.
    """

    def __init__(self, rank: int, *, is_on: bool) -> None:
        self._rank = rank
        self.is_on = is_on
        self.carries: defaultdict[int, Carry] = defaultdict(Carry)
        self.num_steps = 0
        self.scale = 1.0
        self._last_step = -1

    def add_to(self, bucket: GradBucket, step: int) -> None:
        """Adds pending values to a bucket of `step`, the present step."""
        has_added = self.carries[bucket.index()].add_to(bucket.buffer(), self.scale)
        if has_added and self._last_step < step:
            self._last_step = step
            self.num_steps += 1

    def watch(self, bucket: GradBucket, work: _C.AikidoWork) -> None:
        """`work` sums the bucket. It may end without this contribution, or a part of
        it.
        """
        self.carries[bucket.index()].watch(work, self._rank)
