# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch._colors import COLORS, PARTS, part_of


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("forward", "forward"), ("backward", "backward"), ("data", "input"),
        ("forward 3 of stage 1", "forward"), ("weight_gradient", "backward"),
        ("step", "optimizer"), ("all_reduce", "communication"),
        ("all_to_all 17", "communication"), ("send", "communication"),
        ("contribution", "communication"), ("barrier", "communication"),
        ("paused for priority 5", "waiting"), ("stopped", "stopped"),
        ("of my own", "other"),
    ],
)  # fmt: skip
def test_each_name_belongs_to_its_part(name, part):
    assert part_of(name) == part


def test_every_part_has_its_own_colour():
    for background in (0, 1):
        assert len({both[background] for both in COLORS.values()}) == len(PARTS)
