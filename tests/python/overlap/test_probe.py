# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import time

import pytest

from aikido_torch.overlap import _probe
from aikido_torch.overlap._probe import clock_ahead_s, probe


def test_several_sizes_are_timed(group_of_one):
    found = probe(None)
    assert len(found) == 4
    sizes = [num_bytes for num_bytes, _ in found]
    assert sizes == sorted(set(sizes))
    assert all(0 < seconds < 1 for _, seconds in found)


@pytest.mark.parametrize(("within_s", "number"), [(0.0, 2), (0.07, 3), (1.0, 4)])
def test_what_would_take_too_long_is_not_tried(
    group_of_one, monkeypatch, within_s, number
):
    """Half a microsecond for each 4 bytes, and each size is measured three times."""
    monkeypatch.setattr(_probe, "_seconds", lambda tensor, _: tensor.numel() * 5e-7)
    assert len(probe(None, within_s=within_s)) == number


class OtherClock:
    """A backend whose rank 0 is 5 s ahead, and gains a thousandth."""

    def clock_of_rank_0(self):
        return time.monotonic_ns() - 10**10, 5 * 10**9, 1e-3, 0


def test_the_clock_of_rank_0_is_ahead_by_offset_and_drift():
    assert clock_ahead_s(OtherClock()) == pytest.approx(5.01, abs=1e-3)
