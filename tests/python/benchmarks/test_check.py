# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import subprocess
import sys

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks import check, common
from rules import tree

app = Typer()
app.command()(check.main)

GOOD = {
    "case": "allreduce of 1 MB",
    "unit": "ms",
    "value": 1,
    "reference": 2.0,
    "ratio": 0.5,
    "bar": 1.0,
    "holds": True,
}
BAD = GOOD | {"case": "broadcast of 4 MB", "ratio": 2.0, "holds": False}


def run(tmp_path, *contents):
    """Exit status and both outputs of check.py on files with those contents."""
    paths = []
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        paths.append(str(path))
    done = CliRunner().invoke(app, paths)
    return done.exit_code, done.stdout, done.stderr


def test_results_that_hold_make_one_line(tmp_path):
    assert run(tmp_path, [GOOD, GOOD], [GOOD]) == (0, "All 3 results hold.\n", "")


def test_only_results_that_do_not_hold_are_listed(tmp_path):
    status, out, _ = run(tmp_path, [GOOD], [BAD, GOOD])
    assert status == 1
    assert "1 of 3 results do not hold" in out
    assert "broadcast of 4 MB" in out
    assert "allreduce" not in out


def test_a_result_without_a_bar_is_not_judged(tmp_path):
    shown = GOOD | {"ratio": 9.0, "bar": None, "holds": None}
    assert run(tmp_path, [GOOD, shown]) == (0, "All 1 results hold.\n", "")


def test_further_keys_are_allowed(tmp_path):
    assert run(tmp_path, [GOOD | {"machine": {"cores": 2}}])[0] == 0


def test_a_file_written_by_a_benchmark_is_read_back(tmp_path):
    result = common.Result.judge("x", unit="s", value=3.0, reference=2.0, bar=1.0)
    path = tmp_path / "results.json"
    common.write_json(path, [result])
    assert check.read(path) == [result]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not JSON"),
        ({"case": 1}, "must hold a list of results."),
        ([], "holds no results, so it shows nothing."),
        ([GOOD, 7], "result 2 must be an object."),
        ([{"case": "x", "unit": "s"}], "lacks value, reference, ratio, bar, holds."),
        ([GOOD | {"holds": 1}], "holds is 1, of the wrong type."),
        ([GOOD | {"value": True}], "value is True, of the wrong type."),
        ([GOOD | {"bar": "1"}], "bar is '1', of the wrong type."),
        ([GOOD | {"ratio": None}], "ratio is None, of the wrong type."),
        ([GOOD | {"holds": None}], "bar and holds must both be null, or neither."),
        ([GOOD | {"value": float("nan")}], "is no number, so it cannot hold."),
    ],
)
def test_a_malformed_file_ends_with_a_sentence(tmp_path, content, sentence):
    status, out, err = run(tmp_path, [BAD], content)
    assert (status, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_not_there_ends_with_a_sentence(tmp_path):
    done = CliRunner().invoke(app, [str(tmp_path / "none.json")])
    assert done.exit_code == 2
    assert "none.json cannot be read: No such file or directory." in done.stderr


def test_it_runs_as_a_script_from_anywhere(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps([BAD]))
    script = tree.REPOSITORY / "benchmarks/check.py"
    done = subprocess.run(
        [sys.executable, script, path], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
