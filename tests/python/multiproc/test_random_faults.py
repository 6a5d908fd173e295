# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank dies, stops, is cut off or late at a random moment of a random operation."""

import pytest

from harness import fault_cases

NUM_CASES = 200
NUM_PARTS = 4


# Split into parts, so that two test processes can share the work.
@pytest.mark.timeout(200)
@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_under_a_random_fault_no_rank_hangs_and_all_name_the_victim(seed, part):
    num_cases = NUM_CASES // NUM_PARTS
    first = NUM_CASES * seed + num_cases * part
    verdicts = fault_cases.try_cases(range(first, first + num_cases))
    print(fault_cases.summary(verdicts))
    assert [str(v) for v in verdicts if v.wrong] == []
    heard = [s for v in verdicts for s in v.heard_s]
    assert len(heard) > num_cases // 2
    assert sum(v.num_done for v in verdicts) > 10 * num_cases


@pytest.mark.slow
def test_many_more_faults(seed):
    first = NUM_CASES * (1000 + 5 * seed)
    verdicts = fault_cases.try_cases(range(first, first + 5 * NUM_CASES))
    print(fault_cases.summary(verdicts))
    assert [str(v) for v in verdicts if v.wrong] == []
