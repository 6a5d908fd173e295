# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The pure part; tests/python/multiproc/test_catch_up.py has ranks that differ."""

import pytest
import torch
from torch import nn

from aikido_torch.recovery._agreement import first_difference, layout_of


def test_a_layout_has_what_must_be_equal():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    layout = layout_of(net, optimizer)
    assert layout["model.0.weight"] == "torch.float32 [3, 2]"
    assert layout["model.1.num_batches_tracked"] == "torch.int64 []"
    assert layout["optimizer"] == "SGD"
    assert layout["optimizer.param_groups[0].lr"] == "0.5"
    assert layout["optimizer.param_groups[0].params[1]"] == "0.bias"


@pytest.mark.parametrize(
    ("layouts", "text"),
    [
        (
            [{"model.a": "x", "model.b": "y"}, {"model.a": "x", "model.b": "z"}],
            "register: model differs between ranks: model.b is y on rank 0 but z on "
            "rank 1; give all ranks the same model.",
        ),
        (
            [{}, {}, {"copy": "x"}],
            "register: copy differs between ranks: copy is missing on rank 0 but x on "
            "rank 2; give all ranks the same copy.",
        ),
    ],
)
def test_the_first_difference_has_argument_ranks_and_both_values(layouts, text):
    assert first_difference(layouts) == text
