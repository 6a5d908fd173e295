# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace import Outcome
from aikido_torch.trace._pauses import pauses_of
from harness.traces import MS, message

BULK = message(1, 0, 30, [(1, 4), (4.1, 9), (20, 24), (24.1, 30)])


def told(spans):
    return [
        (p.message.number, p.begin_ns / MS, p.end_ns / MS, p.reason)
        for p in pauses_of(spans)
    ]


@pytest.mark.parametrize(
    ("others", "pause"),
    [
        # More urgent on its link, picked while the chunk before was being written.
        (message(2, 6, 15, [(6, 15)], priority=5), (1, 9, 20, "paused for priority 5")),
        # The most urgent of several is the reason.
        (
            message(2, 6, 15, [(6, 15)], priority=5)
            + message(3, 6, 19, [(15, 19)], priority=7),
            (1, 9, 20, "paused for priority 7"),
        ),
        # On another link of the rank.
        (
            message(2, 6, 15, [(10, 15)], priority=5, peer=2),
            (1, 9, 20, "paused for priority 5"),
        ),
        # What goes on its link is the reason rather than what goes on another one.
        (
            message(2, 6, 15, [(10, 12)], priority=5)
            + message(3, 6, 15, [(12, 15)], priority=7, peer=2),
            (1, 9, 20, "paused for priority 5"),
        ),
        # One that others had been let past for long.
        (
            message(2, 0, 15, [(10, 15)], priority=-3),
            (1, 9, 20, "paused for what was overdue, priority -3"),
        ),
        # Not what is as urgent, nor less urgent on another link, nor what went before.
        (
            message(2, 0, 15, [(10, 15)])
            + message(3, 0, 15, [(10, 15)], priority=-3, peer=2)
            + message(4, 0, 5, [(4, 4.1)], priority=5),
            (1, 9, 20, "paused, the link took no more"),
        ),
        ([], (1, 9, 20, "paused, the link took no more")),
    ],
)  # fmt: skip
def test_a_pause_has_the_reason_that_was_picked_between_two_chunks(others, pause):
    assert [p for p in told(BULK + others) if p[0] == 1 and p[1] == 9] == [pause]


def test_a_link_that_is_quick_pauses_nothing_unless_it_was_overtaken():
    quick = message(1, 0, 10, [(0, 4), (4.1, 9)])
    assert told(quick) == []
    elsewhere = message(2, 0, 9, [(4.05, 4.06)], priority=5, peer=2)
    assert told(quick + elsewhere) == []
    overtaking = message(2, 0, 9, [(4.05, 4.06)], priority=5)
    assert told(quick + overtaking) == [(1, 4, 4.1, "paused for priority 5")]


def test_chunks_picked_ahead_of_the_kernel_pause_until_what_went_between_is_written():
    ahead = message(1, 0, 12, [(0, 4), (1, 8), (2, 12)])
    assert told(ahead) == []
    between = message(2, 0, 7, [(0.5, 7)], priority=5)
    assert told(ahead + between) == [(1, 4, 7, "paused for priority 5")]
    # What goes on another link takes no time of this one.
    assert told(ahead + message(2, 0, 7, [(0.5, 7)], priority=5, peer=2)) == []


def test_a_chunk_that_was_not_recorded_is_no_pause():
    whole, first, _, third, fourth = BULK
    assert told([whole, first, third, fourth]) == []


def test_a_message_that_is_cancelled_in_a_pause_has_paused_until_then():
    whole, first, *_ = BULK
    urgent = message(2, 5, 9, [(5, 9)], priority=5)
    cut = whole._replace(outcome=Outcome.CANCELLED)
    assert told([cut, first, *urgent]) == [(1, 4, 30, "paused for priority 5")]
    assert told([whole, first, *urgent]) == []


def test_messages_of_the_same_number_are_told_apart():
    again = message(1, 40, 60, [(40, 44), (50, 60)])
    elsewhere = message(1, 0, 30, [(1, 30)], peer=2)
    found = pauses_of(BULK + again + elsewhere)
    assert [p.message for p in found] == [BULK[0], again[0]]
    shards = [s._replace(shard=1) for s in BULK]
    assert {p.message.shard for p in pauses_of(BULK + shards)} == {0, 1}
    halves = [s._replace(offset=s.offset + 400) for s in BULK]
    assert {p.message.offset for p in pauses_of(BULK + halves)} == {0, 400}
