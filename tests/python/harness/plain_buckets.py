# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""OverlappedDataParallel that has plain buckets for ever, or never."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from aikido_torch.ddp import OverlappedDataParallel, _layout, _planner

_NEVER = 2.0  # no plan shortens an iteration by twice its length
_SMALL_BYTES = 60  # of a bucket: small models have several


@contextlib.contextmanager
def plain_buckets(are_plain: bool = True) -> Iterator[None]:
    """Holds for models that are wrapped and trained in this context.

    Args:
        are_plain: False plans after the first steps, whatever the plan promises, and
            does not try plain buckets.
    """
    if not are_plain:
        with mock.patch.object(OverlappedDataParallel, "_tries", False):
            yield
        return
    with (
        mock.patch.object(_planner, "LEAST_GAIN", _NEVER),
        mock.patch.object(_layout, "_FIRST_BYTES", _SMALL_BYTES),
        mock.patch.object(_layout, "_MOST_BYTES", _SMALL_BYTES),
    ):
        yield
