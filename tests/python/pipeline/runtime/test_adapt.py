# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decisions on warm-ups as tables: measured times in, warm-ups and reason out."""

import pytest

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _schedule
from aikido_torch.pipeline.runtime._adapt import (
    Adapt,
    Adapter,
    fitting_schedule,
    micro_batch_seconds,
)
from aikido_torch.pipeline.runtime._observe import LiveTimes


def times_of(links, slowdown=(1.0, 1.0, 1.0), forward=1.0, backward=2.0):
    stages = len(links) + 1
    return LiveTimes((forward,) * stages, (backward,) * stages, links, slowdown)


def make(name="1f1b", stages=3, micro_batches=12, **options):
    return pipeline.schedule(
        name, stages=stages, micro_batches=micro_batches, **options
    )


def warmups_of(schedule):
    return schedule.options["warmups"]


@pytest.mark.parametrize("name", ["1f1b", "1f1b_async"])
@pytest.mark.parametrize(
    ("links", "most", "warmups"),
    [
        ((0.0, 0.0), None, None),
        # Only the stages before a slow link hold more micro-batches.
        ((2.5, 0.0), None, [4, 1, 0]),
        ((0.0, 2.5), None, [4, 3, 0]),
        # The memory limits the warm-ups.
        ((2.5, 0.0), 4, [3, 1, 0]),
        ((0.0, 2.5), 4, [3, 2, 0]),
        # A change of stage 1 alone is useless: stage 0 holds too few micro-batches.
        ((0.0, 2.5), 3, None),
    ],
)
def test_warm_ups_follow_slow_links_within_the_memory(name, links, most, warmups):
    schedule = make(name, micro_batches=24)
    found = fitting_schedule(schedule, times_of(links), most)
    assert warmups_of(found) == warmups
    found.validate(max_activations=most)
    before = micro_batch_seconds(schedule, times_of(links))
    after = micro_batch_seconds(found, times_of(links))
    assert after < 0.95 * before if warmups else after == before


def test_a_link_slower_than_all_stages_gets_no_deeper_warm_ups():
    """Deeper warm-ups cannot exceed the rate of the link, and they cost memory."""
    schedule = make("1f1b_async", micro_batches=60)
    found = fitting_schedule(schedule, times_of((9.0, 0.0)))
    assert micro_batch_seconds(found, times_of((9.0, 0.0))) == pytest.approx(9.0)
    assert warmups_of(found)[0] <= 4


def test_a_slow_replica_gets_fewer_micro_batches():
    schedule = make(stages=2, replicas=[3, 1], micro_batches=14)
    times = LiveTimes((3.0, 1.0), (6.0, 2.0), (0.0,), (1.0, 3.0, 1.0, 1.0))
    found = fitting_schedule(schedule, times)
    turns = found.options["turns"]
    assert [turns[0].count(replica) for replica in range(3)] == [6, 2, 6]
    assert set(turns[1]) == {0}
    gain = micro_batch_seconds(schedule, times) / micro_batch_seconds(found, times)
    assert gain > 1.5
    # An asynchronous update takes one micro-batch of each replica.
    asynchronous = make("1f1b_async", stages=2, replicas=[3, 1])
    assert fitting_schedule(asynchronous, times).options["turns"] is None


def test_a_single_stage_has_no_warm_up_to_deepen():
    schedule = make("1f1b_async", stages=1, replicas=[2])
    times = LiveTimes((1.0,), (2.0,), (), (1.0, 1.0))
    assert fitting_schedule(schedule, times) is schedule


@pytest.mark.parametrize("replicas", [[1, 2, 1], [2, 1, 3], [1, 3, 2]])
def test_warm_ups_of_replicas_are_whole_turns_and_only_valid_ones_are_chosen(replicas):
    schedule = make("1f1b_async", micro_batches=48, replicas=replicas)
    even = LiveTimes(
        tuple(map(float, replicas)),
        tuple(2.0 * r for r in replicas),
        (1.5, 1.5),
        (1.0,) * sum(replicas),
    )
    found = fitting_schedule(schedule, even)
    assert micro_batch_seconds(schedule, even) > 3.2
    assert micro_batch_seconds(found, even) == pytest.approx(3.0, rel=0.02)


WELL, SLOW = times_of((0.0, 0.0)), times_of((2.5, 0.0))


def test_it_decides_once_for_new_times_and_gives_the_reason():
    adapter = Adapter(make(micro_batches=24), Adapt())
    assert adapter.decide(0.0) is None
    adapter.on_times(WELL)
    assert adapter.decide(1.0) is None
    adapter.on_times(SLOW)
    change = adapter.decide(2.0)
    assert warmups_of(change.schedule) == [4, 1, 0]
    assert change.reason.startswith("warm-ups 2 1 0 become 4 1 0, faster: ")
    assert change.reason.endswith("with links of 2500.0 0.0 ms")
    assert adapter.decide(3.0) is None
    adapter.on_times(SLOW)
    assert adapter.decide(4.0) is None  # already in use


def test_memory_is_freed_when_fewer_activations_were_enough_for_a_while():
    adapter = Adapter(make(micro_batches=24), Adapt(patience_s=10))
    adapter.on_times(SLOW)
    assert adapter.decide(0.0)
    # (now, times, the warm-ups are reduced). Slow times in between restart the wait.
    table = [
        (1.0, WELL, False),
        (9.0, WELL, False),
        (10.0, SLOW, False),
        (11.0, WELL, False),
        (20.0, WELL, False),
        (21.0, WELL, True),
        (22.0, WELL, False),
    ]
    for now, times, goes_back in table:
        adapter.on_times(times)
        change = adapter.decide(now)
        assert (change is not None) == goes_back, now
        if change:
            assert "as fast with fewer activations" in change.reason
    assert warmups_of(adapter.schedule) is None


def test_a_gain_below_the_minimum_changes_nothing():
    gain = 1 - micro_batch_seconds(
        fitting_schedule(make(micro_batches=24), SLOW), SLOW
    ) / micro_batch_seconds(make(micro_batches=24), SLOW)
    for least, changes in [(gain * 0.99, True), (gain * 1.01, False)]:
        adapter = Adapter(make(micro_batches=24), Adapt(min_gain=least))
        adapter.on_times(SLOW)
        assert (adapter.decide(0.0) is not None) == changes


@pytest.mark.parametrize(
    ("schedule", "options", "text"),
    [
        (pipeline.schedule("gpipe", stages=2, micro_batches=4), {}, "is gpipe, or was"),
        (_schedule.Schedule.parse(make().text()), {}, "or was read from text; "),
        (make(), {"max_activations": 2}, "holds activations of 3 .* the limit is 2"),
        (make(), {"every": 0}, "every is 0; it takes 1 or more"),
        (make(), {"max_activations": 0}, "max_activations is 0; it takes"),
        (make(), {"min_gain": 1.0}, r"min_gain is 1\.0; it takes a share"),
        (make(), {"patience_s": -1.0}, r"patience_s is -1\.0; it takes 0"),
    ],
)
def test_schedules_and_options_that_cannot_adapt_are_refused(schedule, options, text):
    with pytest.raises(ConfigError, match=text):
        Adapter(schedule, Adapt(**options))
