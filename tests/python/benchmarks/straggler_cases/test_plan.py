# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math
import statistics

import pytest

from benchmarks.straggler_cases import plan
from benchmarks.straggler_cases.plan import Action, Block


def test_ranks_get_the_blocks_as_they_are_without_what_is_done_to_them():
    actions = (Action(do="kill", at_op=3), Action(do="link", after_s=1.0))
    block = Block(
        name="a",
        arm="skip3",
        ops=5,
        gap_s=0.5,
        pauses={2: [0.0, 1.0, 2.0, 3.0, 4.0]},
        healthy=(1, 2, 3),
        links={3: (20.0, 200.0)},
        actions=actions,
    )
    ((rank_sees, notices),) = plan.from_json(plan.to_json([block]))
    assert notices == {3}
    assert (rank_sees.actions, rank_sees.links) == ((), {})
    assert [rank_sees.pause_s(2, 4), rank_sees.pause_s(1, 4)] == [4.0, 0.5]
    assert rank_sees.members() == (0, 1, 2)
    assert rank_sees.counted() == (1, 2)


def test_every_host_has_the_usual_link_unless_the_block_says_otherwise():
    block = Block(name="a", arm="skip", ops=1, links={1: (20.0, 50.0)})
    usual = (plan.MBIT, plan.MBIT)
    assert plan.links_of(block, 3) == [usual, (20.0, 50.0), usual]


def test_blocks_take_turns_with_another_seed_in_each():
    a, b = (Block(name=name, arm="skip", ops=1) for name in "ab")
    taken = plan.interleaved([a, b], 2)
    assert [(block.name, block.seed) for block in taken] == [
        ("a", 0),
        ("b", 0),
        ("a", 1),
        ("b", 1),
    ]


def test_exactly_that_share_is_late_and_a_seed_repeats_it():
    pauses = plan.late_in_share(50, share=0.2, seconds=0.3, seed=7)
    assert sorted(pauses) == [0.0] * 40 + [0.3] * 10
    assert pauses == plan.late_in_share(50, share=0.2, seconds=0.3, seed=7)
    assert pauses != plan.late_in_share(50, share=0.2, seconds=0.3, seed=8)
    assert plan.late_in_share(3, share=1.0, seconds=0.3, seed=7) == [0.3] * 3


@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0])
def test_computation_is_as_uneven_as_asked(ratio):
    times = sorted(plan.lognormal(20_000, median_s=0.2, ratio=ratio, seed=1))
    p50 = statistics.median(times)
    assert math.isclose(p50, 0.2, rel_tol=0.03)
    assert math.isclose(times[19_800] / p50, ratio, rel_tol=0.08)


def test_stalls_are_a_share_of_computations_that_are_otherwise_equal():
    times = plan.stalls(40, median_s=0.2, ratio=3.0, share=0.075, seed=1)
    assert sorted(times) == [0.2] * 37 + [pytest.approx(0.6)] * 3
    assert times != plan.stalls(40, median_s=0.2, ratio=3.0, share=0.075, seed=2)
    assert plan.stalls(40, median_s=0.2, ratio=1.0, share=0.075, seed=1) == [0.2] * 40


def test_an_allreduce_takes_at_least_its_bytes_by_the_rate():
    # 2 * 3/4 of 4 MiB at 95.7 % of 200 Mbit/s.
    assert math.isclose(plan.bound_s(4 << 20, 4), 0.26297, rel_tol=1e-4)
    assert math.isclose(plan.bound_s(4 << 20, 3), 0.23376, rel_tol=1e-4)


def test_a_deadline_has_room_for_the_slowest_link_of_a_block():
    well = Block(name="a", arm="skip", ops=10)
    slow = Block(name="a", arm="skip", ops=10, links={3: (20.0, 200.0)})
    becomes = Block(
        name="a", arm="skip", ops=10, actions=(Action(do="link", up_mbit=20.0),)
    )
    late = Block(name="a", arm="skip", ops=2, pauses={3: [0.0, 50.0]})
    assert plan.estimate_s([slow]) > plan.estimate_s([well]) + 20
    assert plan.estimate_s([becomes]) == plan.estimate_s([slow])
    assert plan.estimate_s([late]) > 50
