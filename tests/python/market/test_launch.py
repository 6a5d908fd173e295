# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Options and files for launchers."""

import pytest

from aikido_torch.market import MarketError
from aikido_torch.market._launch import nnodes, sky_task


def test_the_range_of_machines():
    assert nnodes(2, 16) == "2:16"
    with pytest.raises(MarketError, match="3 to 2"):
        nnodes(3, 2)


def test_a_task_lists_its_regions_in_order():
    text = sky_task(
        "torchrun --nnodes 1:2 train.py",
        accelerators="V100:1",
        machines=2,
        regions=["us-east-1", "us-west-2"],
        is_spot=True,
    )
    assert text.index('"aws/us-east-1"') < text.index('"aws/us-west-2"')
    assert text.count("use_spot: true") == 2
    assert 'run: "torchrun --nnodes 1:2 train.py"' in text
    with pytest.raises(MarketError, match="needs a region"):
        sky_task("x", accelerators="x", machines=1, regions=[], is_spot=True)
