# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import gzip
import json
import time

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from typer.testing import CliRunner

from aikido_torch.errors import ConfigError
from aikido_torch.trace.__main__ import app
from aikido_torch.trace.export._chrome import write_chrome
from aikido_torch.trace.record._dump import Clock
from aikido_torch.trace.record._spans import Kind
from harness.traces import MS, dump, span

BASE = 10**18  # ns of the wall clock
# Wall clock at zero of the clock of spans.
WALL = BASE - 500 * MS


def profile_file(path, *, rank=0, base=BASE, events=None):
    if events is None:
        events = [
            {"ph": "M", "name": "process_name", "pid": 77, "tid": 0, "ts": 0,
             "args": {"name": "python"}},
            {"ph": "X", "name": "mine", "pid": 77, "tid": 7, "ts": 25_000, "dur": 10},
            {"ph": "s", "name": "flow", "pid": 77, "tid": 7, "ts": 25_001, "id": 1},
        ]  # fmt: skip
    document = {"traceEvents": events, "baseTimeNanoseconds": base}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank}
    path.write_text(json.dumps(document))
    return path


def traced(rank=0, **fields):
    spans = [span(Kind.SECTION, 500, 600, name=1, step=0)]
    return dump(rank, spans, **({"wall_ns": WALL} | fields))


def merged(tmp_path, dumps, *profiles):
    write_chrome(tmp_path / "all.json", dumps, profiles=profiles)
    return json.loads((tmp_path / "all.json").read_text())["traceEvents"]


def test_events_of_the_profiler_are_placed_by_the_clock_of_the_spans(tmp_path):
    made = merged(tmp_path, [traced()], profile_file(tmp_path / "p.json"))
    (ours,) = [e for e in made if e["name"] == "data"]
    (theirs,) = [e for e in made if e["name"] == "mine"]
    # 25 ms of the wall clock are 525 ms of the clock of spans; the first span is at
    # 500.
    assert (ours["ts"], theirs["ts"], theirs["dur"]) == (0, 25_000, 10)
    assert theirs["pid"] != ours["pid"]
    names = [e["args"]["name"] for e in made if e["name"] == "process_name"]
    assert names == ["rank 0", "rank 0, torch.profiler: python"]


def test_clock_offsets_of_ranks_also_apply_to_the_profiler(tmp_path):
    late = traced(1, clock=Clock(offset_ns=40 * MS))
    made = merged(
        tmp_path, [traced(), late],
        profile_file(tmp_path / "0.json"), profile_file(tmp_path / "1.json", rank=1),
    )  # fmt: skip
    assert [e["ts"] for e in made if e["name"] == "mine"] == [25_000, 65_000]
    flows = {e["id"] for e in made if e["name"] == "flow"}
    assert len(flows) == 2


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"rank": 3}, "is of rank 3, and there are traces of ranks 0, 1"),
        ({"rank": None}, "does not say which rank it is of"),
        ({"base": None}, "nobody knows when they were"),
        ({"events": 3}, "has no traceEvents"),
        ({"events": [3]}, "has no traceEvents"),
    ],
)
def test_a_profile_that_cannot_be_placed_gives_a_clear_error(tmp_path, made, text):
    path = profile_file(tmp_path / "p.json", **made)
    with pytest.raises(ConfigError, match=text):
        merged(tmp_path, [traced(), traced(1)], path)


def test_an_older_trace_without_the_wall_clock_gives_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="does not know the wall clock"):
        merged(tmp_path, [traced(wall_ns=None)], profile_file(tmp_path / "p.json"))


def test_a_file_that_is_no_profile_gives_a_clear_error(tmp_path):
    (tmp_path / "p.json").write_text("no")
    with pytest.raises(ConfigError, match="is not JSON"):
        merged(tmp_path, [traced()], tmp_path / "p.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        merged(tmp_path, [traced()], tmp_path / "none.json")


def test_compressed_profiles_are_read(tmp_path):
    plain = profile_file(tmp_path / "p.json").read_bytes()
    path = tmp_path / "p.json.gz"
    path.write_bytes(gzip.compress(plain))
    made = merged(tmp_path, [traced()], path)
    assert [e["ts"] for e in made if e["name"] == "mine"] == [25_000]
    path.write_bytes(gzip.compress(plain)[:40])
    with pytest.raises(ConfigError, match="is not completely compressed"):
        merged(tmp_path, [traced()], path)


def test_the_command_accepts_a_rank_with_a_file(tmp_path):
    traced().write(tmp_path / "0.trace")
    path = profile_file(tmp_path / "p.json", rank=None)
    output = tmp_path / "all.json"
    shown = CliRunner().invoke(
        app,
        [
            "merge", str(tmp_path / "0.trace"), "--output", str(output),
            "--profile", f"0={path}",
        ],
    )  # fmt: skip
    assert shown.exit_code == 0, shown.output
    assert "torch.profiler" in output.read_text()


def test_events_of_torch_are_placed_at_their_time(tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        torch.ones(1)
        begin = time.monotonic_ns()
        with record_function("mine"):
            torch.ones(1)
        end = time.monotonic_ns()
    recorded.export_chrome_trace(str(tmp_path / "p.json"))
    own = dump(0, [span(Kind.SECTION, begin / MS, end / MS, name=1, step=0)])
    own.wall_ns = time.time_ns() - time.monotonic_ns()
    made = merged(tmp_path, [own], tmp_path / "p.json")
    (theirs,) = [e for e in made if e["name"] == "mine"]
    assert -1000 <= theirs["ts"] <= (end - begin) / 1e3 + 1000  # microseconds
