# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""OverlappedDataParallel that has plain buckets from its first step on."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

from aikido_torch.ddp import _overlapped, _planner


@contextlib.contextmanager
def plain_buckets(are_plain: bool = True) -> Iterator[None]:
    """What is wrapped and trained in here; the other kind of buckets is left alone."""
    if not are_plain:
        yield
        return
    by_module, planned = _overlapped.by_module, _planner.planned
    with (
        mock.patch.object(
            _overlapped, "by_module", lambda *a: replace(by_module(*a), is_plain=True)
        ),
        mock.patch.object(
            _planner, "planned", lambda *a: replace(planned(*a), is_plain=True)
        ),
    ):
        yield
