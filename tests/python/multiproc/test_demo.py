# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""`make demo`, shortened: two runs of four ranks each."""

import json
import subprocess
import sys

import pytest

from benchmarks.launch import RanksFailedError, run_ranks
from rules import tree

DEMO = tree.REPOSITORY / "benchmarks/demo.py"


def demo(tmp_path, *arguments):
    """The figures that the demo writes, and what it prints."""
    path = tmp_path / "demo.json"
    done = subprocess.run(
        [sys.executable, DEMO, "--json", path, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


def test_skipping_is_faster_and_leaves_the_same_parameters_everywhere(tmp_path):
    # Long enough for the warm-up of the deadlines (8 operations) to be a small part.
    figures, text = demo(tmp_path, "--steps", "60")
    assert list(figures) == ["wait_all", "skip"]
    for mode, figure in figures.items():
        assert list(figure) == [
            "seconds",
            "steps_per_second",
            "seconds_to_target",
            "accuracy",
            "skipped",
            "hashes_equal",
        ]
        assert figure["hashes_equal"] is True
        assert figure["steps_per_second"] == pytest.approx(60 / figure["seconds"])
        assert mode in text
    wait_all, skip = figures["wait_all"], figures["skip"]
    assert wait_all["skipped"] == [0, 0, 0, 0]
    # 20 steps are late by 150 ms, and all wait for each of them.
    assert wait_all["seconds"] > 20 * 0.150
    assert skip["skipped"][3] > 0
    assert skip["seconds"] < wait_all["seconds"]


def test_without_lateness_one_mode_runs_alone(tmp_path):
    figures, _ = demo(
        tmp_path, "--steps", "10", "--late-share", "0", "--only", "wait_all"
    )
    assert list(figures) == ["wait_all"]
    assert figures["wait_all"]["seconds_to_target"] is None
    assert 0 <= figures["wait_all"]["accuracy"] <= 1


def test_what_the_ranks_say_is_kept_when_they_fail():
    with pytest.raises(RanksFailedError, match=r"(?s)ended with code.*missing 6 requ"):
        run_ranks(
            "demo_train.py", "{}", num_ranks=2, limit_s=60, on_event=lambda event: None
        )


def test_ranks_that_run_past_their_limit_are_stopped():
    with pytest.raises(RanksFailedError, match=r"were stopped after 0\.5 s"):
        run_ranks(
            "demo_train.py", "{}", num_ranks=2, limit_s=0.5, on_event=lambda event: None
        )
