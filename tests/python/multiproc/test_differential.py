# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Random programs give on aikido what they give on Gloo, always with the same bits."""

import pytest

from harness import differential

pytestmark = pytest.mark.beside

# Of one value of --seed; the slow ones come after the quick ones.
NUM_QUICK, NUM_SLOW = 24, 300


def test_programs_give_on_aikido_what_they_give_on_gloo(seed):
    first = 1000 * seed
    num_operations = differential.check(range(first, first + NUM_QUICK))
    assert num_operations > 20 * NUM_QUICK


@pytest.mark.slow
def test_many_programs_give_on_aikido_what_they_give_on_gloo(seed):
    first = 1000 * seed + NUM_QUICK
    num_operations = differential.check(range(first, first + NUM_SLOW))
    assert num_operations > 20 * NUM_SLOW
