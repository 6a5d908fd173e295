# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.trace.analyze._pauses import pauses_of
from aikido_torch.trace.record._spans import SpanOutcome
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
        # A more urgent message on the same link, picked while the chunk before was
        # written.
        (message(2, 6, 15, [(6, 15)], priority=5), (1, 9, 20, "paused for priority 5")),
        # The most urgent of several messages is the reason.
        (
            message(2, 6, 15, [(6, 15)], priority=5)
            + message(3, 6, 19, [(15, 19)], priority=7),
            (1, 9, 20, "paused for priority 7"),
        ),
        # An urgent message on another link of the rank.
        (
            message(2, 6, 15, [(10, 15)], priority=5, peer=2),
            (1, 9, 20, "paused for priority 5"),
        ),
        # A message on the same link is the reason, not a message on another link.
        (
            message(2, 6, 15, [(10, 12)], priority=5)
            + message(3, 6, 15, [(12, 15)], priority=7, peer=2),
            (1, 9, 20, "paused for priority 5"),
        ),
        # A less urgent message that others had overtaken for too long.
        (
            message(2, 0, 15, [(10, 15)], priority=-3),
            (1, 9, 20, "paused for what was overdue, priority -3"),
        ),
        # Not the reason: a message of equal priority, a less urgent message on another
        # link, a message before the pause.
        (
            message(2, 0, 15, [(10, 15)])
            + message(3, 0, 15, [(10, 15)], priority=-3, peer=2)
            + message(4, 0, 5, [(4, 4.1)], priority=5),
            (1, 9, 20, "paused, the link took no more"),
        ),
        ([], (1, 9, 20, "paused, the link took no more")),
    ],
)  # fmt: skip
def test_a_pause_is_explained_by_the_message_picked_between_two_chunks(others, pause):
    assert [p for p in told(BULK + others) if p[0] == 1 and p[1] == 9] == [pause]


def test_a_fast_link_has_no_pause_unless_the_message_was_overtaken():
    quick = message(1, 0, 10, [(0, 4), (4.1, 9)])
    assert told(quick) == []
    elsewhere = message(2, 0, 9, [(4.05, 4.06)], priority=5, peer=2)
    assert told(quick + elsewhere) == []
    overtaking = message(2, 0, 9, [(4.05, 4.06)], priority=5)
    assert told(quick + overtaking) == [(1, 4, 4.1, "paused for priority 5")]


def test_chunks_queued_ahead_pause_until_the_message_between_them_is_written():
    ahead = message(1, 0, 12, [(0, 4), (1, 8), (2, 12)])
    assert told(ahead) == []
    between = message(2, 0, 7, [(0.5, 7)], priority=5)
    assert told(ahead + between) == [(1, 4, 7, "paused for priority 5")]
    # A message on another link does not delay this link.
    assert told(ahead + message(2, 0, 7, [(0.5, 7)], priority=5, peer=2)) == []


def test_an_unrecorded_chunk_is_not_a_pause():
    whole, first, _, third, fourth = BULK
    assert told([whole, first, third, fourth]) == []


def test_a_message_cancelled_during_a_pause_pauses_until_its_end():
    whole, first, *_ = BULK
    urgent = message(2, 5, 9, [(5, 9)], priority=5)
    cut = whole._replace(outcome=SpanOutcome.CANCELLED)
    assert told([cut, first, *urgent]) == [(1, 4, 30, "paused for priority 5")]
    assert told([whole, first, *urgent]) == []


def test_messages_with_the_same_number_are_distinguished():
    again = message(1, 40, 60, [(40, 44), (50, 60)])
    elsewhere = message(1, 0, 30, [(1, 30)], peer=2)
    found = pauses_of(BULK + again + elsewhere)
    assert [p.message for p in found] == [BULK[0], again[0]]
    shards = [s._replace(shard=1) for s in BULK]
    assert {p.message.shard for p in pauses_of(BULK + shards)} == {0, 1}
    halves = [s._replace(offset=s.offset + 400) for s in BULK]
    assert {p.message.offset for p in pauses_of(BULK + halves)} == {0, 400}
