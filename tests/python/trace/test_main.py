# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

from torch.distributed import FileStore
from typer.testing import CliRunner

from aikido_torch.trace.__main__ import app
from aikido_torch.trace.record._spans import Kind
from aikido_torch.trace.record._trace_store import Board
from benchmarks.tracing_cases.simulate import Injected, Model
from harness.traces import dump, span


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_merge_writes_one_file_of_all_ranks(tmp_path):
    files = []
    for rank in range(3):
        files.append(tmp_path / f"rank{rank}.trace")
        dump(rank, [span(Kind.SECTION, 1, 2, name=2)]).write(files[-1])
    output = tmp_path / "all.json"
    result = run("merge", *files, "--output", output)
    assert result.exit_code == 0
    assert "note: rank 3 of 4 is missing" in result.output
    pids = {e["pid"] for e in json.loads(output.read_text())["traceEvents"]}
    assert pids == {0, 1, 2}


def test_report_prints_and_writes_a_page(tmp_path):
    files = []
    for made in Model().run([None] + [Injected("compute", 3, seconds=0.2)] * 5, seed=1):
        files.append(tmp_path / f"rank{made.rank}.trace")
        made.write(files[-1])
    page = tmp_path / "report.html"
    result = run("report", *files, "--html", page)
    assert result.exit_code == 0
    assert "compute" in result.output
    assert "Rank 3 worked" in page.read_text()


def test_arm_without_a_store_says_where_it_looked(tmp_path, monkeypatch):
    output = tmp_path / "all.json"
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    result = run("arm", "--steps", "1:2", "--output", output)
    assert result.exit_code == 1
    assert "Where is the job?" in result.output
    store = f"file://{tmp_path}/none"
    result = run("arm", "--steps", "1:2", "--output", output, "--store", store)
    assert result.exit_code == 1
    assert "is no file" in result.output


def test_arm_checks_its_output_files_before_it_asks(tmp_path):
    store = tmp_path / "store"
    board = Board(FileStore(str(store)))
    board.join(1)
    arguments = ("arm", "--steps", "1:2", "--store", f"file://{store}")
    for files in (
        ("--output", tmp_path / "no" / "all.json"),
        ("--output", tmp_path / "all.json", "--dumps", tmp_path / "no"),
    ):
        result = run(*arguments, *files)
        assert result.exit_code == 1
        assert "cannot be written" in result.output
    assert board.num_requests() == 0


def test_fetch_writes_the_remaining_dumps_of_a_request(tmp_path):
    store, output = tmp_path / "store", tmp_path / "all.json"
    board = Board(FileStore(str(store)))
    board.join(4)
    board.request(1, 2)
    board.give(1, 3, dump(3, [span(Kind.SECTION, 1, 2, name=2)]).to_bytes())
    arguments = ("--request", 1, "--store", f"file://{store}", "--output", output)
    result = run("fetch", *arguments)
    assert result.exit_code == 0
    assert "traces of 1 ranks for request 1" in result.output
    assert output.exists()
    result = run("fetch", *arguments)
    assert result.exit_code == 1
    assert "Nothing is left of request 1" in result.output


def test_errors_are_printed_without_a_traceback(tmp_path):
    bad = tmp_path / "bad.trace"
    bad.write_bytes(b"nothing")
    result = run("merge", bad, "--output", tmp_path / "all.json")
    assert result.exit_code == 1
    assert "bad.trace is no trace of aikido" in result.output
    assert "Traceback" not in result.output
