# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Random programs: same results as on Gloo, and equal bits in every run."""

import pytest

from harness import differential

pytestmark = pytest.mark.beside

# Programs for one value of --seed. The slow programs have the numbers after the quick.
NUM_QUICK, NUM_SLOW = 24, 300


def test_programs_have_the_same_results_as_on_gloo(seed):
    first = 1000 * seed
    num_operations = differential.check(range(first, first + NUM_QUICK))
    assert num_operations > 20 * NUM_QUICK


@pytest.mark.slow
def test_many_programs_have_the_same_results_as_on_gloo(seed):
    first = 1000 * seed + NUM_QUICK
    num_operations = differential.check(range(first, first + NUM_SLOW))
    assert num_operations > 20 * NUM_SLOW
