# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math
from fractions import Fraction

import numpy
import pytest
import torch

from aikido_torch._weights import weight_of
from aikido_torch.errors import ConfigError


@pytest.mark.parametrize(
    "number", [3, 3.0, Fraction(3), numpy.float32(3), numpy.int64(3)]
)
def test_each_number_is_a_weight(number):
    assert weight_of("all_reduce", number) == 3.0


def test_a_number_beyond_a_float_is_infinite_and_so_out_of_range():
    assert weight_of("all_reduce", 10**400) == math.inf


@pytest.mark.parametrize("wrong", ["3", True, 3j, None, torch.tensor(3.0)])
def test_anything_else_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"all_reduce: weight is .*; pass a number"):
        weight_of("all_reduce", wrong)
