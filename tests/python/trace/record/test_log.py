# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import logging

import pytest
import torch.distributed as dist

from aikido_torch.errors import ConfigError
from aikido_torch.trace.record._log import Brake, Seen, log_events, news, news_of

BEFORE = Seen(skipped=4, failed=1)


@pytest.mark.parametrize(
    ("after", "event", "level", "values"),
    [
        (
            Seen(standing="refused", skipped=4, failed=1),
            "standing", logging.WARNING, {"standing": "refused"},
        ),
        (
            Seen(skipped=7, failed=1),
            "skipped", logging.INFO, {"calls": 3, "total": 7},
        ),
        (
            Seen(skipped=4, failed=2),
            "failed", logging.ERROR, {"calls": 1, "total": 2},
        ),
        (
            Seen(epoch=2, skipped=1),
            "skipped", logging.INFO, {"calls": 1, "total": 1},
        ),
    ],
)  # fmt: skip
def test_each_change_is_logged_once(after, event, level, values):
    (told,) = news(5, BEFORE, after)
    assert (told.event, told.level) == (event, level)
    assert told.values == {"rank": 5} | values
    assert news(5, after, after) == []


def test_counters_of_another_view_are_not_compared():
    before = Seen(standing="returning", skipped=4, failed=1)
    assert news(5, before, Seen(epoch=2)) == []


def event_of(kind, member=1, by=(), text=""):
    values = {"number": 1, "group": "0", "rank": 0, "member": member, "by": list(by)}
    return values | {"kind": kind, "text": text}


@pytest.mark.parametrize(
    ("event", "level", "line"),
    [
        (
            event_of("late"), logging.WARNING,
            "aikido suspect: it holds up the others, its shards are to go to them; "
            "rank=0 member=1 cause=late",
        ),
        (
            event_of("silent", 2), logging.WARNING,
            "aikido suspect: nothing comes from it: it is stopped, its machine is "
            "down, or the link is cut; rank=0 member=2 cause=silent",
        ),
        (
            event_of("shards_moved", by=[0, 2]), logging.WARNING,
            "aikido takeover: others own the shards that were its own; "
            "rank=0 member=1 what=shards by=0,2",
        ),
        (
            event_of("shards_back"), logging.INFO,
            "aikido handback: it owns shards again; rank=0 member=1 what=shards",
        ),
        (
            event_of("stood_in", by=[3]), logging.WARNING,
            "aikido takeover: a backup contributes in its place; "
            "rank=0 member=1 what=data by=3",
        ),
        (
            event_of("took_over", by=[0]), logging.INFO,
            "aikido takeover: another rank computes micro-batches of it; "
            "rank=0 member=1 what=micro_batches by=0",
        ),
        (
            event_of("out"), logging.WARNING,
            "aikido member_out: the others go on without it; rank=0 member=1",
        ),
        (
            event_of("back"), logging.INFO,
            "aikido member_back: takes part again; rank=0 member=1",
        ),
        (
            event_of("lost", text="rank 1 is lost"), logging.ERROR,
            "aikido death: rank 1 is lost; rank=0 member=1",
        ),
    ],
)  # fmt: skip
def test_an_event_of_a_member_is_one_line(event, level, line):
    told = news_of(event)
    assert (told.level, told.line()) == (level, line)


def lines_of(told):
    return [(each.event, each.values["member"], each.values["times"]) for each in told]


def test_repeated_events_of_a_member_are_logged_at_growing_intervals():
    brake = Brake()
    told = []
    for second in range(3600):
        if second % 3 == 0:
            told += brake.add(news_of(event_of("late")), second)
        told += brake.due(second)
    told += brake.due(3600, is_end=True)
    assert len(told) == 12  # instead of 1200: intervals of 10 s, 20 s, ... up to 600 s
    assert sum(each.values["times"] for each in told) == 1200
    assert [each.values["times"] for each in told[:4]] == [1, 3, 7, 13]
    assert brake.due(3601, is_end=True) == []


def test_events_of_other_members_and_kinds_are_not_delayed():
    brake = Brake()
    told = []
    for kind, member in (("late", 1), ("late", 2), ("silent", 1), ("out", 1)):
        told += brake.add(news_of(event_of(kind, member)), 0.0)
    for kind in ("shards_moved", "stood_in"):
        told += brake.add(news_of(event_of(kind)), 0.0)
    assert lines_of(told) == [
        ("suspect", 1, 1),
        ("suspect", 2, 1),
        ("suspect", 1, 1),
        ("member_out", 1, 1),
        ("takeover", 1, 1),
        ("takeover", 1, 1),
    ]


def test_after_a_quiet_interval_an_event_is_logged_at_once():
    brake = Brake()
    late = news_of(event_of("late"))
    assert lines_of(brake.add(late, 0.0)) == [("suspect", 1, 1)]
    assert brake.add(late, 5.0) == []
    assert brake.due(9.9) == []
    assert lines_of(brake.due(10.0)) == [("suspect", 1, 1)]
    assert brake.due(29.9) == []
    assert brake.due(30.0) == []
    assert lines_of(brake.add(late, 31.0)) == [("suspect", 1, 1)]
    assert brake.add(late, 32.0) == []
    assert lines_of(brake.due(41.0)) == [("suspect", 1, 1)]


def test_changes_until_close_are_logged_with_their_values(group_of_one, caplog):
    caplog.set_level(logging.INFO, logger="aikido")
    log = log_events(look_s=3600)
    ((name, seen),) = log._before.items()
    log._before = {name: Seen(epoch=seen.epoch, skipped=-2)}
    log.close()
    log.close()
    assert not log._thread.is_alive()
    (record,) = caplog.records
    values = {"rank": 0, "calls": 2, "total": 0}
    assert record.aikido == {"event": "skipped"} | values
    assert caplog.messages == [
        "aikido skipped: calls ended without this rank; rank=0 calls=2 total=0"
    ]


def test_the_last_counts_of_a_group_are_logged(group_of_one, caplog):
    caplog.set_level(logging.INFO, logger="aikido")
    log = log_events(look_s=0.2)
    ((name, seen),) = log._before.items()
    log._before = {name: Seen(epoch=seen.epoch, failed=-3)}
    dist.destroy_process_group()
    log._thread.join(timeout=20)
    assert caplog.messages == ["aikido failed: calls failed; rank=0 calls=3 total=0"]
    assert not hasattr(log, "_backend")  # so that the backend can be freed


def test_the_log_ends_with_its_group(group_of_one):
    log = log_events(look_s=0.001)
    dist.destroy_process_group()
    log._thread.join(timeout=20)
    assert not log._thread.is_alive()
    log.close()


def test_without_a_group_there_is_nothing_to_log():
    with pytest.raises(ConfigError, match="no process group"):
        log_events()
