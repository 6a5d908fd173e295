# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aikido_torch import pipeline
from aikido_torch.pipeline.__main__ import app
from aikido_torch.pipeline.plan import _profile

VGG16 = str(Path(__file__).parents[2] / "data/pipedream/vgg16.txt")


def run(*arguments):
    return CliRunner().invoke(app, ["partition", *arguments])


def test_a_plan_is_printed_and_written(tmp_path):
    staged, plan = tmp_path / "staged.txt", tmp_path / "plan.json"
    result = run(
        VGG16, "--machines", "4", "--cost-model", "published_code",
        "--output", str(staged), "--json", str(plan),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Plan 3-1" in result.output
    written = json.loads(plan.read_text())
    assert written["text"] == "3-1"
    assert written["period_s"] == pytest.approx(0.205520896, rel=1e-9)
    assert [stage["replicas"] for stage in written["stages"]] == [[3], [1]]
    layers = _profile.read_profile(staged).layers
    assert {layer.stage for layer in layers} == {0, 1}


def test_options_are_passed_to_the_partitioner(tmp_path):
    plan = tmp_path / "plan.json"
    result = run(
        VGG16, "--machines", "2,2", "--bandwidth", "1e10,1e9", "--straight",
        "--free-transfers", "--json", str(plan),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    written = json.loads(plan.read_text())
    assert written["text"] == "1(1-1)-1(1-1)"
    assert [stage["transfer_s"] for stage in written["stages"]] == [0, 0, 0, 0]
    few = run(VGG16, "--machines", "4", "--bandwidth", "1e6", "--fewer-machines")
    assert "on 1 machine:" in few.output


def test_errors_are_printed_as_one_sentence(tmp_path):
    result = run(VGG16, "--machines", "4", "--memory", "1e9")
    assert result.exit_code == 1
    assert "no plan fits into 1000000000 bytes" in result.output
    result = run(VGG16, "--machines", "four")
    assert result.exit_code == 2
    assert "it takes numbers with commas" in result.output
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    result = run(str(empty), "--machines", "4")
    assert result.exit_code == 1
    assert "the profile is empty" in result.output


def run_schedule(*arguments):
    return CliRunner().invoke(app, ["schedule", *arguments])


def test_a_schedule_is_printed_with_its_figures(tmp_path):
    result = run_schedule("1f1b", "--stages", "4", "--micro-batches", "8")
    assert result.exit_code == 0, result.output
    made = pipeline.schedule("1f1b", stages=4, micro_batches=8)
    assert result.output.startswith(made.grid())
    assert "8 micro-batches in 33; idle 27.3% of it" in result.output
    file = tmp_path / "mine.txt"
    file.write_text(made.text())
    read = run_schedule(str(file), "--text")
    assert read.output == made.text() + result.output


def test_options_of_a_schedule_are_passed():
    result = run_schedule(
        "1f1b_async", "--stages", "3", "--micro-batches", "24", "--replicas", "1,2,1",
        "--weights", "vertical_sync", "--micro-batches-per-step", "4", "--warmups",
        "5,2,0", "--recompute", "--forward", "1,2,1", "--backward", "2", "--links",
        "0.5", "--slow", "0:2", "--max-slots", "7", "--max-activations", "2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    made = pipeline.schedule(
        "1f1b_async", stages=3, micro_batches=24, replicas=[1, 2, 1],
        weights="vertical_sync", micro_batches_per_step=4, warmups=[5, 2, 0],
        recompute=True,
    )  # fmt: skip
    simulation = made.simulate(
        forward=[1, 2, 1], backward=2, links=0.5, slowdown={0: 2}
    )
    assert result.output.startswith(made.grid(simulation, max_slots=7))
    assert f"24 micro-batches in {simulation.makespan:g}" in result.output
    looped = run_schedule(
        "interleaved_1f1b", "--stages", "4", "--stages-per-rank", "2",
        "--micro-batches", "4",
    )  # fmt: skip
    assert "0, 2" in looped.output


def test_an_invalid_schedule_is_explained_in_one_sentence(tmp_path):
    result = run_schedule("1f1b", "--micro-batches", "4")
    assert result.exit_code == 1
    assert "stages is 0; it takes 1 to 4096" in result.output
    result = run_schedule(
        "gpipe", "--stages", "2", "--micro-batches", "4", "--max-activations", "3"
    )
    assert result.exit_code == 1
    assert "the limit is 3" in result.output
    result = run_schedule("gpipe", "--stages", "2", "--slow", "x")
    assert result.exit_code in (1, 2)


def test_a_file_that_is_no_schedule_is_named(tmp_path):
    path = tmp_path / "broken.txt"
    for content in (b"\xff\xfe", b"", b"rank 0\n"):
        path.write_bytes(content)
        result = run_schedule(str(path))
        assert result.exit_code == 1, result.exception
        assert f"{path}: " in result.output.replace("\n", "")
    for missing in (tmp_path / "none.txt", tmp_path):
        result = run_schedule(str(missing), "--stages", "2", "--micro-batches", "4")
        assert result.exit_code == 1
        assert "there is no such file" in result.output.replace("\n", " ")


@pytest.mark.parametrize("option", ["--replicas", "--warmups", "--backward"])
def test_an_empty_list_is_refused(option):
    result = run_schedule("gpipe", "--stages", "2", "--micro-batches", "4", option, "")
    assert result.exit_code == 2
    assert f"Invalid value for {option}" in result.output


@pytest.mark.parametrize("text", ["2", "2:", ":2", ""])
def test_a_slow_rank_without_its_factor_is_explained(text):
    result = run_schedule(
        "gpipe", "--stages", "2", "--micro-batches", "4", "--slow", text
    )
    assert result.exit_code == 2
    assert f"'{text}'; it takes a rank and its factor" in result.output


def test_a_schedule_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "gpipe.png"
    result = run_schedule(
        "gpipe", "--stages", "2", "--micro-batches", "4", "--plot", str(path)
    )
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 1000
