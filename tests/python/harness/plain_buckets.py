# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""OverlappedDataParallel that always or never uses plain buckets."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from aikido_torch.overlap import _layout, _planner
from aikido_torch.overlap._loop_state import PlanPhase

_NEVER = 2.0  # a plan cannot shorten an iteration by twice its length
_SMALL_BYTES = 60  # of a bucket, so that small models have several buckets


@contextlib.contextmanager
def plain_buckets(are_plain: bool = True) -> Iterator[None]:
    """Applies to models that are wrapped and trained in this context.

    Args:
        are_plain: True uses plain buckets in all steps. False never tries plain buckets
            and plans after the first steps, even without a gain.
    """
    if not are_plain:
        with mock.patch.object(PlanPhase, "tries", False):
            yield
        return
    with (
        mock.patch.object(_planner, "LEAST_GAIN", _NEVER),
        mock.patch.object(_layout, "_FIRST_BYTES", _SMALL_BYTES),
        mock.patch.object(_layout, "_MOST_BYTES", _SMALL_BYTES),
    ):
        yield
