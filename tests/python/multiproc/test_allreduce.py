# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A short run of benchmarks/allreduce.py, which compares both backends."""

import json
import os
import subprocess
import sys

import pytest

from rules import tree

pytestmark = pytest.mark.beside


def test_the_benchmark_writes_results_in_the_common_form(tmp_path):
    path = tmp_path / "allreduce.json"
    script = tree.REPOSITORY / "benchmarks/allreduce.py"
    arguments = ["--sizes=4K,1M", "--iterations=1", "--alternations=2", "--ranks=3"]
    arguments += ["--no-least"]  # the bound needs a compiled program
    done = subprocess.run(
        [sys.executable, script, "--json", path, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "200"},  # on a busy machine the figures are wide
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())
    assert [row["case"] for row in rows] == ["allreduce 4 KiB", "allreduce 1 MiB"]
    assert [row["bar"] for row in rows] == [0.1, 0.25]
    for row in rows:
        assert row["unit"] == "ms"
        assert row["ratio"] == row["value"] / row["reference"]
        assert row["num_samples"] == 2
        assert row["ranks"] == 3
        assert row["machine"]["torch"]
        assert row["case"].removeprefix("allreduce ") in done.stdout
