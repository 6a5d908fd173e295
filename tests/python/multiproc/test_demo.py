# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Short runs of `make demo` with four ranks."""

import json
import signal
import subprocess
import sys

import pytest

from benchmarks.lab import Lab, network
from benchmarks.launch import RanksFailedError
from benchmarks.local_ranks import run_ranks
from rules import tree

DEMO = tree.REPOSITORY / "benchmarks/demo.py"


def demo(tmp_path, *arguments):
    """The figures that the demo writes, and the text that it prints."""
    path = tmp_path / "demo.json"
    done = subprocess.run(
        [sys.executable, DEMO, "--json", path, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


@pytest.mark.alone
def test_skipping_is_faster_and_leaves_the_same_parameters_everywhere(tmp_path):
    # Long enough that the warm-up of the deadlines (8 operations) is a small part.
    figures, text = demo(tmp_path, "--steps", "60", "--straggler", "sleep")
    assert list(figures) == ["wait_all", "skip", "backup", "reassign"]
    for mode, figure in figures.items():
        assert list(figure) == [
            "seconds",
            "steps_per_second",
            "share",
            "samples_per_second",
            "seconds_to_target",
            "accuracy",
            "skipped",
            "stood_in_for",
            "hashes_equal",
            "taken",
        ]
        assert figure["hashes_equal"] is True
        assert figure["steps_per_second"] == pytest.approx(60 / figure["seconds"])
        samples = figure["steps_per_second"] * figure["share"] * 4 * 32
        assert figure["samples_per_second"] == pytest.approx(samples)
        assert mode in text
    wait_all, skip, backup, reassign = figures.values()
    assert wait_all["skipped"] == [0, 0, 0, 0]
    # 20 steps are late by 150 ms, and all ranks wait for each of them.
    assert wait_all["seconds"] > 20 * 0.150
    assert skip["skipped"][3] > 0
    assert wait_all["share"] == 1
    assert 0.5 < skip["share"] < 1
    assert skip["share"] < backup["share"] <= 1
    assert skip["seconds"] < wait_all["seconds"]
    assert len(backup["skipped"]) == 5
    assert backup["stood_in_for"][3] > 0
    assert backup["stood_in_for"][4] == backup["skipped"][4] == 0
    assert backup["seconds"] < wait_all["seconds"]
    assert reassign["share"] == 1
    assert sum(reassign["taken"]) > 20
    assert reassign["seconds"] < wait_all["seconds"]


@pytest.mark.beside
def test_without_lateness_one_mode_runs_alone(tmp_path):
    figures, _ = demo(
        tmp_path,
        *("--straggler", "sleep", "--late-share", "0"),
        *("--steps", "10", "--only", "wait_all"),
    )
    assert list(figures) == ["wait_all"]
    assert figures["wait_all"]["seconds_to_target"] is None
    assert 0 <= figures["wait_all"]["accuracy"] <= 1


@pytest.fixture
def _lab():
    if reason := Lab.unavailable():
        pytest.skip(reason)


@pytest.mark.alone
@pytest.mark.usefixtures("_lab")
def test_skipping_a_slow_uplink_is_faster_and_all_end_with_the_same_parameters(
    tmp_path,
):
    # So slow that a step on a busy machine takes less time than a wait for the link.
    figures, text = demo(
        tmp_path,
        *("--steps", "45", "--straggler", "uplink", "--slow-mbit", "8"),
    )
    assert list(figures) == ["gloo", "wait_all", "skip", "backup"]
    for mode, figure in figures.items():
        assert figure["hashes_equal"] is True
        assert f"{mode}: uplink at 8 Mbit/s" in text
        assert f"{mode}: uplink at 200 Mbit/s" in text
    gloo, wait_all, skip, backup = figures.values()
    assert gloo["skipped"] == wait_all["skipped"] == [0, 0, 0, 0]
    assert skip["skipped"][3] > 0
    assert wait_all["share"] == 1
    assert 0.5 < skip["share"] < 1
    assert skip["share"] < backup["share"] <= 1
    assert backup["stood_in_for"][3] > 0
    for waits in (gloo, wait_all):
        # 430 kB at 8 Mbit/s take 430 ms.
        assert waits["slow_steps_per_second"] < 1 / 0.430 + 1
        for ours in (skip, backup):
            assert ours["slow_steps_per_second"] > 1.5 * waits["slow_steps_per_second"]


@pytest.mark.beside
@pytest.mark.usefixtures("_lab")
def test_an_interrupted_demo_leaves_no_hosts_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, DEMO, "--straggler", "uplink", "--only", "wait_all"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    for line in process.stdout:
        if "uplink at 20" in line:
            process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    hosts = [network.Name.of_namespace(name) for name in network.namespaces()]
    assert process.pid not in [host.pid for host in hosts if host]


@pytest.mark.beside
def test_output_of_failing_ranks_is_kept():
    with pytest.raises(RanksFailedError, match=r"(?s)exit code 1.*missing 4 requ"):
        run_ranks(
            "demo_train.py", "{}", num_ranks=2, limit_s=60, on_event=lambda event: None
        )
