# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.__main__ import app
from aikido_torch.pipeline._profile_command import made_by, sample
from aikido_torch.pipeline.plan import _profile


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_a_model_is_profiled_and_the_profile_cut(tmp_path):
    file, staged = tmp_path / "resnet.txt", tmp_path / "staged.txt"
    result = run(
        "profile", "--model", "harness.layered_models:ResNet", "--input", "4,3,8,8",
        "--micro-batch", "2", "--repeats", "2", "--whole", "blocks.*",
        "--output", str(file),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Layers, found by export" in result.output
    assert "blocks.0" in result.output
    assert "times as long" in result.output
    profile = _profile.read_profile(file)
    assert [layer.id for layer in profile.layers] == ["stem", "blocks.0", "head"]
    assert profile.layers[2].activation_bytes == 2 * 10 * 4
    result = run(
        "partition", str(file), "--machines", "2", "--straight", "--output", str(staged)
    )
    assert result.exit_code == 0, result.output
    assert "Plan 1-1" in result.output
    stages = [layer.stage for layer in _profile.read_profile(staged).layers]
    assert stages[0] == 0
    assert stages[-1] == 1


def test_a_factory_can_supply_its_inputs(tmp_path, monkeypatch):
    (tmp_path / "bring_inputs.py").write_text(
        "import torch\n"
        "from harness.layered_models import Language\n"
        "def tied():\n"
        "    return Language(tied=True), torch.zeros(2, 7, dtype=torch.int64)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = ("--model", "bring_inputs:tied", "--output", str(tmp_path / "x.txt"))
    result = run("profile", *arguments)
    assert result.exit_code == 1
    assert 'layers "embed", "head" share the parameter' in result.output
    result = run("profile", *arguments, "--shared", "merge", "--repeats", "1")
    assert result.exit_code == 0, result.output
    result = run("profile", *arguments, "--shared", "merge", "--input", "2,7:int64:50")
    assert result.exit_code == 0, result.output


def test_errors_are_printed_as_one_sentence(tmp_path):
    output = ("--output", str(tmp_path / "x.txt"))
    result = run("profile", "--model", "harness.layered_models:TwoTowers", *output)
    assert result.exit_code == 1
    assert "returns a model and no inputs; give --input" in result.output
    result = run("profile", "--model", "torch.nn:ReLU", "--input", "2,x", *output)
    assert result.exit_code == 1
    assert '--input is "2,x"; it takes a shape' in result.output
    result = run("profile", "--model", "torch.nn:ReLU", "--trace", "jit", *output)
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("torch.nn", 'is "torch.nn"; it takes package.module:factory'),
        ("nowhere.at_all:x", "No module named 'nowhere'"),
        ("torch.nn:nothing", "has no attribute 'nothing'"),
        ("builtins:list", "builtins:list returns a list"),
        ("builtins:dict", "builtins:dict returns a dict"),
        ("torch.nn:Linear", "missing a required argument: 'in_features'"),
        ("math:pi", "that is a float"),
    ],
)
def test_a_factory_that_returns_no_model_is_named(name, told):
    with pytest.raises(ConfigError) as caught:
        made_by(name)
    assert told in str(caught.value)


def test_a_factory_returns_a_model():
    model, inputs = made_by("torch.nn:ReLU")
    assert isinstance(model, nn.ReLU)
    assert inputs is None


def test_inputs_are_made_from_a_shape_a_type_and_a_limit():
    assert sample("2,3").shape == (2, 3)
    assert sample("2:bfloat16").dtype == torch.bfloat16
    numbers = sample("1000:int64:7")
    assert numbers.dtype == torch.int64
    assert set(numbers.tolist()) == set(range(7))
    assert set(sample("100:int32").tolist()) == {0, 1}


@pytest.mark.parametrize("text", ["", "2,,3", "0", "2:float99", "2:nn", "2:int64:0"])
def test_invalid_inputs_are_named(text):
    with pytest.raises(ConfigError, match="it takes a shape"):
        sample(text)
