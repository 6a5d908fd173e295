# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.errors import ConfigError
from aikido_torch.trace.analyze._summary import PauseSummary, summarize
from aikido_torch.trace.record._spans import Kind, SpanOutcome
from harness.traces import MS, dump, message, paused_message, span


def call(step, begin, end, first, **fields):
    return span(
        Kind.OPERATION, begin, end, number=step, step=step, first_ns=round(first * MS)
    )._replace(**fields)


def example():
    early = [call(1, 10, 60, 50), call(2, 70, 100, 90), call(3, 130, 160, 150)]
    late = [
        call(1, 50, 60, 50),
        call(2, 90, 100, 90, outcome=SpanOutcome.SKIPPED),
        call(3, 150, 160, 150, outcome=SpanOutcome.FAILED),
        span(Kind.STOP, 110, 140),
    ]
    chunk = span(Kind.RECEIVE_CHUNK, 91, 95, number=2, peer=1, bytes=8000)
    return [dump(1, late), dump(0, [*early, chunk])]


def test_ranks_links_and_arrivals_are_summed():
    summary = summarize(example())
    assert summary.steps == [1, 2, 3]
    assert summary.arrivals[2] == {0: 0.0, 1: 20.0}
    assert summary.rates == {(1, 0): 2_000_000.0}
    first, second = summary.ranks[0], summary.ranks[1]
    assert list(summary.ranks) == [0, 1]
    assert (first.last, second.last) == (0.0, 1.0)
    assert (first.waited_ms, first.wire_ms) == (20.0, 10.0)
    assert (second.waited_ms, second.wire_ms) == (0.0, 10.0)
    assert (second.skipped, second.failed, second.num_calls) == (1, 1, 3)
    assert (first.stopped_ms, second.stopped_ms) == (0.0, 30.0)
    assert (first.work_ms, first.step_ms) == (20.0, 50.0)
    assert [v.first_step for v in summary.verdicts] == [2]


def test_missing_ranks_are_noted():
    (note,) = summarize(example()).notes
    assert note.startswith("ranks 2, 3 of 4 are missing")


def test_a_trace_without_calls_is_accepted():
    summary = summarize([dump(0, [])])
    assert summary.steps == []
    assert summary.ranks[0].num_calls == 0


def test_an_empty_list_of_dumps_gives_a_clear_error():
    with pytest.raises(ConfigError, match="no trace to look at"):
        summarize([])


def test_pauses_of_messages_are_summed_by_rank_and_reason():
    dumps = [dump(1, paused_message()), dump(0, paused_message())]
    assert summarize(dumps).pauses == [
        PauseSummary(0, "paused for priority 5", 1, 11.0, 11.0),
        PauseSummary(1, "paused for priority 5", 1, 11.0, 11.0),
    ]
    still = message(3, 40, 50, [(40, 41), (45, 50)])
    overtaken = message(4, 60, 90, [(60, 61), (89, 90)])
    urgent = message(5, 70, 80, [(70, 80)], priority=5)
    found = summarize([dump(0, paused_message() + still + overtaken + urgent)]).pauses
    assert found == [
        PauseSummary(0, "paused for priority 5", 2, 39.0, 28.0),
        PauseSummary(0, "paused, the link took no more", 1, 4.0, 4.0),
    ]


def test_calls_of_a_subgroup_are_matched_by_its_members():
    # Two groups have the same name and calls with the same numbers. Rank 3 is late in
    # its group and skipped once. Rank 0 has one more call, alone, for which no rank is
    # late.
    late_ms = {0: 0.0, 1: 2.0, 2: 0.0, 3: 30.0}
    dumps = []
    for rank, late in late_ms.items():
        pair = (0, 1) if rank < 2 else (2, 3)
        calls = [
            call(step, 50 * step + late, 50 * step + 40, 50 * step + late)
            for step in (1, 2, 3)
        ]
        if rank == 3:
            calls[1] = calls[1]._replace(outcome=SpanOutcome.SKIPPED)
        if rank == 0:
            calls.append(call(4, 200, 210, 200))
        dumps.append(dump(rank, calls, members={"default": pair}))
    summary = summarize(dumps)
    shares = {rank: each.last for rank, each in summary.ranks.items()}
    assert shares == {0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0}
    assert summary.ranks[3].skipped == 1
    # A rank without a dump is not waited for.
    shares = {rank: each.last for rank, each in summarize(dumps[1:]).ranks.items()}
    assert shares == {1: 0.0, 2: 0.0, 3: 1.0}


def test_a_call_in_progress_has_no_times_yet():
    open_call = call(4, 200, 900, 900, outcome=SpanOutcome.OPEN)
    hung = [dump(0, [call(3, 130, 160, 150), open_call])]
    first = summarize(hung).ranks[0]
    assert (first.waited_ms, first.wire_ms, first.num_calls) == (20.0, 10.0, 1)
