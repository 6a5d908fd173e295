# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.demo_plan import (
    Plan,
    ShardedBatches,
    late_steps,
    slow_steps,
    steps_per_second,
    uplink_mbit,
)


def plan(**changes) -> Plan:
    values = {
        "mode": "skip",
        "data": "digits.npz",
        "steps": 90,
        "delay_ms": 150.0,
        "late_share": 1 / 3,
        "seed": 0,
    }
    return Plan(**(values | changes))


def batches_of(rank, *, num_items=50, num_ranks=4, batch_size=3, seed=0):
    return ShardedBatches(
        num_items, rank=rank, num_ranks=num_ranks, batch_size=batch_size, seed=seed
    )


def take(batches, count):
    return [next(batches).tolist() for _ in range(count)]


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 3))
def test_skipping_batches_leads_to_the_same_ones_as_taking_them(jumps, rank):
    straight = take(batches_of(rank), sum(jumps) + len(jumps))
    jumping, position = batches_of(rank), 0
    for jump in jumps:
        jumping.skip(jump)
        position += jump
        assert next(jumping).tolist() == straight[position]
        position += 1


def test_an_epoch_gives_each_item_to_one_rank_at_most():
    shards = [batches_of(rank) for rank in range(4)]
    per_epoch = shards[0].batches_per_epoch
    assert per_epoch == 4
    epochs = []
    for _ in range(2):
        taken = [i for s in shards for batch in take(s, per_epoch) for i in batch]
        assert len(taken) == len(set(taken)) == 4 * 4 * 3
        assert set(taken) <= set(range(50))
        epochs.append(taken)
    assert epochs[0] != epochs[1]


def test_all_batches_are_full():
    assert {len(batch) for batch in take(batches_of(3), 50)} == {3}


def test_another_seed_gives_another_order():
    assert take(batches_of(0), 4) == take(batches_of(0), 4)
    assert take(batches_of(0), 4) != take(batches_of(0, seed=1), 4)


def test_too_few_items_for_one_batch_per_rank_are_refused():
    with pytest.raises(ValueError, match="50 items do not fill one batch of 13"):
        batches_of(0, batch_size=13)


def test_going_back_is_refused():
    with pytest.raises(ValueError, match="cannot skip -1 batches"):
        batches_of(0).skip(-1)


@pytest.mark.parametrize(("share", "count"), [(0, 0), (1 / 3, 30), (1, 90)])
def test_the_late_rank_is_late_in_the_asked_share_of_steps(share, count):
    late = late_steps(plan(late_share=share))
    assert late.shape == (90,)
    assert late.sum() == count


def test_both_modes_meet_the_same_late_steps():
    ours, other = late_steps(plan(mode="skip")), late_steps(plan(mode="wait_all"))
    assert np.array_equal(ours, other)
    assert not np.array_equal(ours, late_steps(plan(seed=1)))


def test_the_uplink_is_slow_in_the_middle_and_then_well_again():
    slow = plan(mbit=200.0, slow_mbit=20.0)
    rates = [uplink_mbit(slow, step) for step in range(91)]
    assert rates == [200] * 27 + [20] * 27 + [200] * 37
    assert slow_steps(plan()) == range(0)
    assert [uplink_mbit(plan(mbit=50.0), step) for step in (0, 45)] == [50, 50]
    assert uplink_mbit(plan(), 45) is None


def test_the_speed_within_steps_is_that_of_the_copies_taken_there():
    curve = [{"step": s, "seconds": s / 5 if s < 20 else s} for s in range(0, 60, 10)]
    assert steps_per_second(curve, range(10)) == pytest.approx(5)
    assert steps_per_second(curve, range(25, 55)) == pytest.approx(1)
    assert steps_per_second(curve, range(41, 49)) is None


def test_a_plan_survives_its_text_form():
    assert Plan.from_json(plan().to_json()) == plan()
