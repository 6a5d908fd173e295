# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import dataclasses

import numpy as np
import pytest

from benchmarks.reassign_cases import plan
from benchmarks.reassign_cases.plan import Training

USUAL = Training(arm=plan.DDP, num_ranks=4, items=8, item_ms=10.0, steps=6, warm_up=2)


def changed(**values):
    return dataclasses.replace(USUAL, **values)


def test_the_ideal_without_slow_ranks_is_the_work_of_one_rank():
    assert USUAL.ideal_s() == pytest.approx(6 * 8 * 0.010)


@pytest.mark.parametrize(("slower", "speed"), [(1.0, 3.5), (4.0, 3.2)])
def test_the_ideal_is_the_whole_work_by_the_sum_of_the_speeds(slower, speed):
    slow = changed(disruption="one", slower=slower)
    assert slow.ideal_s() == pytest.approx(6 * 32 * 0.010 / speed)
    assert (slow.slowness()[:, :-1] == 1).all()


def test_the_ideal_leaves_the_first_steps_out():
    uneven = changed(sigma=1.0)
    work = uneven.work_s()
    assert work.shape == (8, 32)
    assert uneven.ideal_s() == pytest.approx(work[2:].sum() / 4)


def test_a_moving_disruption_is_at_one_rank_at_a_time():
    moving = changed(disruption="moving", slower=1.0, steps=98)
    slowness = moving.slowness()
    assert (slowness.sum(axis=1) == 5).all()
    assert slowness.argmax(axis=1)[[0, 19, 20, 59, 60, 80]].tolist() == [
        *(0, 0, 1, 2, 3, 0)
    ]


def test_intervals_of_a_power_law_are_within_their_limits():
    found = changed(disruption="power-law", steps=998).slowness()
    assert set(np.unique(found)) > {1.0}
    slow = found[found > 1]
    least, most = plan.SLOWNESS
    assert least <= slow.min() < slow.max() == most
    for own in found.T:
        edges = np.flatnonzero(np.diff(own)) + 1
        lengths = np.diff(edges)
        assert plan.LENGTHS[0] <= lengths.min()
        assert lengths.max() <= plan.LENGTHS[1]
    assert len({tuple(own) for own in found.T}) == 4


def test_lengths_are_log_normal_with_the_given_mean_and_the_prediction_is_wrong():
    uneven = changed(sigma=1.0, wrong=0.3, steps=2000)
    work = uneven.work_s()
    assert work.mean() == pytest.approx(0.010, rel=0.05)
    assert np.log(work).std() == pytest.approx(1.0, rel=0.02)
    assert np.log(uneven.predicted() / work).std() == pytest.approx(0.3, rel=0.02)


def test_arms_take_turns_and_each_turn_has_its_seed():
    found = plan.in_turns(changed(sigma=1.0), turns=2)
    assert [(each.arm, each.seed) for each in found] == [
        (arm, seed) for seed in range(2) for arm in plan.ARMS
    ]
    first, second = found[0], found[len(plan.ARMS)]
    assert (found[1].work_s() == first.work_s()).all()
    assert (second.work_s() != first.work_s()).all()


def test_a_plan_reaches_the_ranks_unchanged():
    trainings = plan.in_turns(changed(disruption="one", slower=0.5), turns=2)
    assert plan.from_json(plan.to_json(trainings)) == trainings


def test_the_limit_exceeds_the_time_of_the_slowest_arm():
    slow = changed(disruption="one", slower=4.0)
    assert slow.limit_s() > 8 * 8 * 5 * 0.010
