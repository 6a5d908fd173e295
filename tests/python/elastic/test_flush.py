# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import random

import pytest

from aikido_torch.elastic._flush import ConsistentPoint, Delta, FlushQueue
from aikido_torch.errors import ConfigError, InternalError


def queue_of(*shards, step=-1):
    queue = FlushQueue()
    for shard in shards:
        queue.own(shard, step)
    return queue


def test_steps_of_a_pending_shard_are_coalesced():
    queue = queue_of(0)
    queue.record(0, 0, 100)
    assert queue.record(0, 1, 100) == Delta(0, -1, 1, 100)
    assert queue.pending_bytes == 100
    assert queue.take() == Delta(0, -1, 1, 100)
    assert queue.take() is None


def test_a_delta_in_flight_is_not_coalesced_and_its_shard_waits():
    queue = queue_of(0)
    queue.record(0, 0, 100)
    first = queue.take()
    queue.record(0, 1, 100)
    assert queue.record(0, 2, 100) == Delta(0, 0, 2, 100)
    assert queue.take() is None
    assert queue.pending_bytes == 200
    queue.acknowledge(first)
    assert queue.take() == Delta(0, 0, 2, 100)


def test_the_shard_whose_copy_is_behind_the_most_comes_first():
    queue = queue_of(0, 2)
    queue.own(1, -1)
    for step in range(2):
        queue.record(1, step, 10)
    queue.own(0, 1)
    for shard in (0, 2):
        queue.record(shard, 2, 10)
    assert [queue.take().shard for _ in range(3)] == [1, 2, 0]


def test_a_failed_delta_is_sent_again_with_later_steps():
    queue = queue_of(0)
    queue.record(0, 0, 100)
    delta = queue.take()
    queue.record(0, 1, 80)
    queue.fail(delta)
    assert queue.take() == Delta(0, -1, 1, 100)
    queue.fail(delta)  # of an earlier attempt
    assert queue.take() is None


def test_a_failed_delta_without_later_steps_is_pending_again():
    queue = queue_of(0)
    queue.record(0, 0, 100)
    delta = queue.take()
    queue.fail(delta)
    assert queue.take() == delta


def test_a_shard_with_another_owner_has_no_deltas():
    queue = queue_of(0, 1)
    queue.record(0, 0, 10)
    queue.record(1, 0, 10)
    delta = queue.take()
    queue.disown(0)
    queue.disown(1)
    queue.acknowledge(delta)
    assert (queue.take(), queue.pending_bytes) == (None, 0)
    with pytest.raises(InternalError, match="step 1 of shard 0 is recorded"):
        queue.record(0, 1, 10)


def test_steps_do_not_go_back_except_by_a_rollback():
    queue = queue_of(0)
    queue.record(0, 3, 10)
    with pytest.raises(InternalError, match="step 3 of shard 0"):
        queue.record(0, 3, 10)
    queue.roll_back(2)
    assert queue.pending_bytes == 0
    assert queue.record(0, 3, 10) == Delta(0, 2, 3, 10)


def test_all_deltas_are_sent_if_the_warning_is_long_enough():
    queue = queue_of(0, 1)
    queue.record(0, 0, 100)
    queue.record(1, 0, 100)
    plan = queue.plan(warning_s=2.0, bytes_per_s=100)
    assert [d.shard for d in plan.deltas] == [0, 1]
    assert plan.is_complete
    assert plan.reason == "2 deltas take 2 s of 2 s of warning; no step is lost"


def test_the_oldest_deltas_are_sent_within_a_short_warning():
    queue = queue_of(0, 1, 2)
    for shard in (2, 1, 0):
        queue.record(shard, 0, 100)
    queue.take()  # in flight, and not yet acknowledged
    plan = queue.plan(warning_s=1.5, bytes_per_s=100)
    assert [d.shard for d in plan.deltas] == [0]
    assert [d.shard for d in plan.left_behind] == [1, 2]
    assert plan.reason == (
        "3 deltas take 3 s of 1.5 s of warning; 2 of them are not sent, so the job "
        "returns to its consistent point"
    )


def test_nothing_is_sent_at_a_rate_of_zero():
    queue = queue_of(0)
    assert queue.plan(warning_s=0, bytes_per_s=0).is_complete
    queue.record(0, 0, 1)
    assert queue.plan(warning_s=1e9, bytes_per_s=0).deltas == ()


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf")])
def test_a_wrong_time_or_rate_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"warning_s is .*; it takes a finite"):
        queue_of(0).plan(wrong, 1)
    with pytest.raises(ConfigError, match="bytes_per_s is"):
        queue_of(0).plan(1, wrong)


def test_the_consistent_point_is_a_step_of_all_copies():
    point = ConsistentPoint([0, 1])
    assert point.record(Delta(0, -1, 0, 1)) == ()
    assert (point.step, point.versions_of(0)) == (-1, (-1, 0))
    assert point.record(Delta(1, -1, 0, 1)) == (-1,)
    assert (point.step, point.versions_of(1)) == (0, (0,))


def test_a_coalesced_delta_moves_the_point_only_if_all_copies_have_its_step():
    point = ConsistentPoint([0, 1])
    point.record(Delta(0, -1, 2, 1))
    point.record(Delta(1, -1, 1, 1))
    assert point.step == -1
    assert point.record(Delta(1, 1, 2, 1)) == (-1, 1)
    assert point.step == 2


def test_a_rollback_drops_later_versions():
    point = ConsistentPoint([0, 1], step=4)
    point.record(Delta(0, 4, 5, 1))
    assert point.roll_back() == 4
    assert point.versions_of(0) == (4,)
    with pytest.raises(
        InternalError, match=r"follows step 5, and the copy has .*\[4\]"
    ):
        point.record(Delta(0, 5, 6, 1))


def test_a_step_that_would_put_two_steps_at_risk_waits():
    point = ConsistentPoint([0], step=4)
    assert point.may_commit(5)
    assert not point.may_commit(6)
    point.record(Delta(0, 4, 5, 1))
    assert point.may_commit(6)
    assert not ConsistentPoint([0], step=4, max_lag=0).may_commit(5)


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="there are 0 shards"):
        ConsistentPoint([])
    with pytest.raises(ConfigError, match="max_lag is -1"):
        ConsistentPoint([0], max_lag=-1)


@pytest.mark.parametrize("seed", range(100))
def test_random_flushes_lose_at_most_one_step_and_end_complete(seed):
    rng = random.Random(seed)
    shards, max_lag = range(rng.randint(1, 5)), rng.randint(1, 3)
    queues = [queue_of(*shards[i::2]) for i in range(2)]
    point, committed = ConsistentPoint(shards, max_lag=max_lag), -1
    in_flight = []
    for _ in range(300):
        event = rng.random()
        if event < 0.3 and point.may_commit(committed + 1):
            committed += 1
            for queue, own in zip(queues, (shards[0::2], shards[1::2]), strict=True):
                for shard in own:
                    queue.record(shard, committed, 10)
        elif event < 0.6:
            queue = rng.choice(queues)
            if delta := queue.take():
                in_flight.append((queue, delta))
        elif event < 0.9 and in_flight:
            queue, delta = in_flight.pop(rng.randrange(len(in_flight)))
            if rng.random() < 0.2:
                queue.fail(delta)
            else:
                point.record(delta)
                queue.acknowledge(delta)
        elif event > 0.97:  # owners are lost
            committed = point.roll_back()
            in_flight.clear()
            for queue in queues:
                queue.roll_back(committed)
        assert 0 <= committed - point.step <= max_lag
    for queue, delta in in_flight:
        queue.fail(delta)
    for queue in queues:
        while delta := queue.take():
            point.record(delta)
            queue.acknowledge(delta)
    assert point.step == committed > 0
