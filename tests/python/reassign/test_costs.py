# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import logging
import math

import numpy as np
import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.reassign._costs import costs_of_list, costs_of_part, joined


def test_a_list_has_one_cost_for_each_sample():
    assert costs_of_list([1, 2.5, 3], 3).tolist() == [1.0, 2.5, 3.0]


@pytest.mark.parametrize(
    ("costs", "part"),
    [
        ([1.0, 2.0], "shape [2], but the dataset has 3 samples"),
        ([1.0, math.nan, 2.0], "cost of sample 1 is nan"),
        ([1.0, 2.0, -3.0], "cost of sample 2 is -3.0"),
        ([0, 2.0, 3.0], "cost of sample 0 is 0.0"),
        ([1.0, math.inf, 2.0], "cost of sample 1 is inf"),
        (["a", "b", "c"], "no list of numbers"),
        (7, "shape [], but"),
    ],
)
def test_a_wrong_list_is_refused(costs, part):
    with pytest.raises(ConfigError) as error:
        costs_of_list(costs, 3)
    assert part in str(error.value)


def test_each_rank_evaluates_a_part():
    samples = "abcdefg"
    parts = [
        costs_of_part(lambda s: ord(s) - 96, samples.__getitem__, indices)
        for indices in (range(3), range(3, 6), range(6, 7), range(0))
    ]
    assert joined(parts).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (-1, "cost of sample 2 is -1.0"),
        (math.nan, "cost of sample 2 is nan"),
        (0, "cost of sample 2 is 0.0"),
        ("x", "cost raised ValueError for sample 2: could not convert"),
        (None, "cost raised TypeError for sample 2: float() argument"),
    ],
)
def test_the_first_sample_with_a_wrong_cost_is_named(value, part):
    values = [1, 1, value, value]
    found = costs_of_part(lambda s: s, values.__getitem__, range(4))
    assert part in found
    with pytest.raises(ConfigError) as error:
        joined([np.ones(2), found])
    assert "(found by rank 1)" in str(error.value)


def test_a_long_evaluation_is_reported(caplog):
    times = iter(range(0, 100, 3))
    with caplog.at_level(logging.INFO, "aikido"):
        costs_of_part(float, lambda i: i + 1, range(4), lambda: next(times))
    assert caplog.messages == [
        "StepLoader: the costs of 2 of 4 samples are known after 6 s.",
        "StepLoader: the costs of 4 of 4 samples are known after 12 s.",
    ]
