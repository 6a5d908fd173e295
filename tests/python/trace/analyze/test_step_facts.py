# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.trace import read
from aikido_torch.trace.analyze._step_facts import (
    LinkStep,
    RankStep,
    Timeline,
    facts_of,
)
from aikido_torch.trace.record._dump import Clock, encode
from aikido_torch.trace.record._spans import Kind, SpanOutcome, pack
from harness.traces import MS, dump, span

NAMES = ["default", "data", "forward", "wait"]


def call(step, begin, end, **fields):
    return span(Kind.OPERATION, begin, end, number=step, step=step, **fields)


def example(rank=0, extra=(), **fields):
    spans = [call(5, 10, 20), call(6, 60, 100), *extra]
    return dump(rank, spans, names=NAMES, **fields)


def test_own_work_is_the_time_from_the_last_results_to_the_last_call():
    later = call(6, 75, 95)._replace(number=60)
    (facts,) = facts_of([example(extra=[later])])
    assert facts.step == 6
    assert facts.ranks == {0: RankStep(work_s=0.055, length_s=0.08)}


def test_waits_are_no_work_and_waits_for_data_are_separate():
    extra = [
        span(Kind.SECTION, 15, 30, name=3),  # 10 ms are in this step's work
        span(Kind.SECTION, 30, 34, name=1),
        span(Kind.SECTION, 59, 80, name=3),
        span(Kind.SECTION, 40, 50, name=2),
    ]
    (facts,) = facts_of([example(extra=extra)])
    assert facts.ranks[0].work_s == 0.029
    assert facts.ranks[0].input_s == 0.004


def test_waits_for_futures_are_no_work_if_the_parts_of_the_step_are_known():
    parts = [span(Kind.SECTION, 20, 50, name=2), span(Kind.SECTION, 70, 74, name=2)]
    # The loop waits for the future of the second of three calls, from 62 to 70 and from
    # 74 to 80. The first call is in progress during the forward.
    calls = [
        call(6, 30, 40)._replace(number=60),
        call(6, 62, 80)._replace(number=61),
        call(6, 85, 90)._replace(number=62),
    ]
    begun = dump(0, [call(5, 10, 20), *calls, *parts], names=NAMES)
    (facts,) = facts_of([begun])
    assert facts.ranks[0].work_s == 0.051
    # Overlapping waits count once.
    begun.spans.append(span(Kind.SECTION, 60, 66, name=3))
    (facts,) = facts_of([begun])
    assert facts.ranks[0].work_s == 0.049
    # Without parts of the step, waiting looks like computing.
    begun.spans = [s for s in begun.spans if s not in parts]
    (facts,) = facts_of([begun])
    assert facts.ranks[0].work_s == 0.059


def test_own_work_is_divided_into_the_parts_of_the_step():
    extra = [
        span(Kind.SECTION, 15, 22, name=5),  # 2 ms are after the results
        span(Kind.SECTION, 25, 30, name=1),
        span(Kind.SECTION, 30, 42, name=2),
        span(Kind.SECTION, 35, 38, name=3),  # wait inside the forward
        span(Kind.SECTION, 42, 70, name=4),
        span(Kind.STOP, 50, 55),
    ]
    begun = example(extra=extra)
    begun.names = [*NAMES, "backward", "optimizer"]
    (facts,) = facts_of([begun])
    assert facts.ranks[0].parts == pytest.approx(
        {
            "optimizer": 0.002, "input": 0.005, "forward": 0.009, "backward": 0.013,
            "loop": 0.003,
        }
    )  # fmt: skip
    assert facts.ranks[0].work_s == 0.037


def test_a_stop_is_counted_in_the_step_and_in_its_work():
    (facts,) = facts_of([example(extra=[span(Kind.STOP, 50, 90)])])
    assert facts.ranks[0].stopped_s == 0.04
    assert facts.ranks[0].stopped_in_work_s == 0.01


def stopped_rank(begin, end):
    """Three steps, from 20 to 120, to 520 and to 620 ms, and one stop."""
    calls = [call(5, 10, 20), call(6, 110, 120), call(7, 510, 520), call(8, 610, 620)]
    return dump(0, [*calls, span(Kind.STOP, begin, end)], names=NAMES)


def test_a_stop_counts_in_the_step_that_contains_most_of_it():
    # The stop began at some time in its first 40 ms: its observer slept until then.
    steps = facts_of([stopped_rank(90, 500)])
    assert [f.ranks[0].stopped_s for f in steps] == [0.0, 0.38, 0.0]
    steps = facts_of([stopped_rank(60, 500)])
    assert [f.ranks[0].stopped_s for f in steps] == pytest.approx([0.06, 0.38, 0.0])


def test_work_beside_a_stop_is_uncertain_by_the_error_of_the_stop():
    steps = facts_of([stopped_rank(90, 500)])
    assert [f.ranks[0].unsure_s for f in steps] == pytest.approx([0.02, 0.04, 0.0])


def test_calls_issued_ahead_tell_nothing_about_work():
    ahead = dump(0, [call(5, 10, 20), call(6, 12, 30)], names=NAMES)
    assert facts_of([ahead]) == []


def test_link_times_are_summed_by_the_step_of_their_call():
    chunks = [
        span(Kind.RECEIVE_CHUNK, 61, 64, number=6, peer=1, bytes=10_000),
        span(Kind.RECEIVE_CHUNK, 65, 66, number=6, peer=1, bytes=20_000),
        span(Kind.RECEIVE_CHUNK, 65, 69, number=6, peer=1, bytes=100),  # too short
        span(Kind.RECEIVE_CHUNK, 65, 69, number=9, peer=1, bytes=20_000),  # no call
        span(Kind.RECEIVE_CHUNK, 12, 19, number=5, peer=1, bytes=20_000),
    ]
    (facts,) = facts_of([example(extra=chunks)])
    assert facts.links == {(1, 0): LinkStep(30_000, 0.004)}


def test_links_of_a_subgroup_are_links_of_the_job():
    chunk = span(Kind.RECEIVE_CHUNK, 61, 64, number=6, peer=1, bytes=10_000)
    dumps = []
    for rank, pair in ((0, (0, 1)), (2, (2, 3))):
        # Both groups have the same name and differ only in their members.
        begun = example(rank, members={"default": pair})
        # In a file, peers are ranks of their group.
        dumps.append(read(encode(begun, pack([*begun.spans, chunk]))))
    dumps[1].spans = [
        s._replace(step=s.step + 1) if s.step >= 0 else s for s in dumps[1].spans
    ]
    first, second = facts_of(dumps)
    assert (first.step, first.links) == (6, {(1, 0): LinkStep(10_000, 0.003)})
    assert (second.step, second.links) == (7, {(3, 2): LinkStep(10_000, 0.003)})


def test_a_link_to_an_unknown_peer_is_left_out():
    chunk = span(Kind.RECEIVE_CHUNK, 61, 64, number=6, peer=-1, bytes=10_000)
    (facts,) = facts_of([example(extra=[chunk])])
    assert facts.links == {}


def test_a_call_in_progress_tells_nothing_about_its_step():
    under_way = call(6, 75, 500, outcome=SpanOutcome.OPEN)._replace(number=60)
    (facts,) = facts_of([example(extra=[under_way])])
    assert facts.ranks == {0: RankStep(work_s=0.04, length_s=0.08)}


def test_chunks_that_arrive_during_a_stop_of_the_sender_do_not_count():
    chunks = [
        span(Kind.RECEIVE_CHUNK, 61, 64, number=6, peer=1, bytes=10_000),
        span(Kind.RECEIVE_CHUNK, 70, 90, number=6, peer=1, bytes=20_000),
    ]
    # The sender's clock is 1 s ahead.
    stop = span(Kind.STOP, 1075, 1088)
    sender = example(1, [stop], clock=Clock(offset_ns=-1000 * MS))
    (facts,) = facts_of([example(extra=chunks), sender])
    assert facts.links == {(1, 0): LinkStep(10_000, 0.003)}


def test_calls_outside_of_steps_are_left_out():
    assert facts_of([dump(0, [call(-1, 1, 2), call(-1, 3, 4)], names=NAMES)]) == []


INTERVALS = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


@given(st.lists(INTERVALS), INTERVALS)
def test_a_timeline_finds_the_same_spans_as_a_full_scan(intervals, asked):
    spans = [span(Kind.SECTION, *interval) for interval in intervals]
    begin, end = (time * MS for time in asked)
    timeline = Timeline(spans)
    between = [s for s in spans if s.end_ns > begin and s.begin_ns < end]
    found = timeline.between(begin, end)
    assert [s for s in found if s in between] == sorted(
        between, key=lambda s: s.begin_ns
    )
    assert timeline.within(begin, end) == sum(
        max(0, min(s.end_ns, end) - max(s.begin_ns, begin)) for s in spans
    )


def test_a_timeline_leaves_out_distant_spans():
    timeline = Timeline([span(Kind.STOP, 10 * i, 10 * i + 5) for i in range(100)])
    found = timeline.between(500 * MS, 520 * MS)
    assert [s.begin_ns // MS for s in found] == [500, 510]
