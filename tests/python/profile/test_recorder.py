# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from aikido_torch.errors import ConfigError
from aikido_torch.profile._recorder import (
    Inputs,
    layer_rule,
    layers_of,
    record,
    replaced_forwards,
    structure_of,
)
from harness.layered_models import Language, Residual


def layers(model, *whole):
    return list(layers_of(model, layer_rule(whole)))


def test_modules_without_children_and_modules_of_torch_are_layers():
    model = nn.Sequential(
        nn.Linear(4, 4),
        nn.Sequential(nn.ReLU(), Residual(2)),
        nn.MultiheadAttention(4, 2),
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, batch_first=True), 2),
        weight_norm(nn.Linear(4, 4)),
    )
    blocks = [f"1.1.{name}" for name in ("conv1", "bn1", "relu", "conv2", "bn2")]
    assert layers(model) == [
        "0", "1.0", *blocks, "2", "3.layers.0", "3.layers.1", "4",
    ]  # fmt: skip


def test_classes_and_paths_can_be_declared_one_layer():
    model = nn.Sequential(nn.Sequential(Residual(2), Residual(2)), nn.Sequential())
    assert layers(model, Residual) == ["0.0", "0.1", "1"]
    assert layers(model, "0.*") == ["0.0", "0.1", "1"]
    assert layers(model, "0") == ["0", "1"]


def test_a_module_in_two_places_is_one_layer_with_the_first_path():
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.Sequential(shared))
    assert layers(model) == ["0"]


def test_calls_are_numbered_and_recorded_with_their_results():
    model = Residual(2)
    x = torch.randn(3, 2, 4, 4)
    recording = record(model, layers_of(model, layer_rule(())), Inputs((x,), {}))
    assert [(call.path, call.number) for call in recording.calls] == [
        ("conv1", 0), ("bn1", 0), ("relu", 0), ("conv2", 0), ("bn2", 0), ("relu", 1),
    ]  # fmt: skip
    assert recording.counts()["relu"] == 2
    kinds = recording.of("relu", 1).result_kinds
    assert [(kind.shape, kind.needs_gradient) for kind in kinds] == [
        ((3, 2, 4, 4), True)
    ]
    assert recording.of("relu", 2) is None


def test_tensors_of_calls_are_kept_on_request():
    model = Language()
    found = layers_of(model, layer_rule(()))
    inputs = Inputs((torch.zeros(2, 7, dtype=torch.int64),), {})
    kept = record(model, found, inputs, keep_tensors=True).of("second", 0)
    assert [list(t.shape) for t in kept.argument_tensors] == [
        [2, 7, 16], [1, 2, 16], [1, 2, 16],
    ]  # fmt: skip
    assert all(t.grad_fn is None for t in kept.result_tensors)
    bare = record(model, found, inputs).of("second", 0)
    assert bare.argument_tensors == []


def test_a_structure_can_be_filled_with_other_tensors():
    structure, tensors = structure_of({"a": (torch.ones(1), None), "b": [2]})
    assert [len(tensors), structure.others()] == [1, [2]]
    assert structure.filled(["x"]) == {"a": ("x", None), "b": [2]}


def test_forward_is_restored_even_after_an_error():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    model = nn.Sequential(nn.Linear(2, 2), Broken())

    def own(x):
        return x

    vars(model[0])["forward"] = own
    with pytest.raises(ValueError, match="broken"):
        record(model, layers_of(model, layer_rule(())), Inputs((torch.ones(2),), {}))
    assert vars(model[0])["forward"] is own
    assert "forward" not in vars(model[1])


def test_forward_is_replaced_only_inside_the_scope():
    model = nn.Sequential(nn.ReLU())
    with replaced_forwards({"0": model[0]}, lambda path, _: lambda x: (path, x)):
        assert model(1) == ("0", 1)


def test_a_layer_that_returns_no_tensor_is_refused_by_name():
    class Number(nn.Module):
        def forward(self, x):
            return x, 1.5

    model = nn.Sequential(nn.ReLU(), Number())
    with pytest.raises(ConfigError, match=r'layer "1" \(Number\) returns a float'):
        record(model, layers_of(model, layer_rule(())), Inputs((torch.ones(2),), {}))
