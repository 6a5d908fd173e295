# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aikido_torch import pipeline
from aikido_torch.pipeline.__main__ import app

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
    layers = pipeline.read_profile(staged).layers
    assert {layer.stage for layer in layers} == {0, 1}


def test_options_are_passed_on(tmp_path):
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


def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path):
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
