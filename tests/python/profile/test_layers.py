# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from aikido_torch import _C, pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.profile._evaluate import evaluate
from aikido_torch.profile._layers import parts_of
from aikido_torch.profile._recorder import Inputs, layer_rule
from aikido_torch.profile._trace import trace_export
from harness.layered_models import Language, ResNet, TwoTowers


def parts(model, *args, whole=(), shared="refuse"):
    traced = trace_export(model, Inputs(args, {}), layer_rule(whole))
    return parts_of(traced, evaluate(traced, model), model, shared=shared)


def edges(found):
    return {(other.id, part.id) for part in found for other in part.needs}


def small(forward, **children):
    """A model with these children and this forward."""

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            for name, child in children.items():
                setattr(self, name, child)

    Small.forward = forward
    return Small()


def test_a_residual_block():
    found = parts(ResNet(), torch.ones(2, 3, 8, 8))
    block = [f"blocks.0.{n}" for n in ("conv1", "bn1", "relu", "conv2", "bn2")]
    ids = ["stem", *block, "blocks.0.relu#2", "head"]
    assert [part.id for part in found] == ids
    assert edges(found) == {*itertools.pairwise(ids), ("stem", "blocks.0.bn2")}
    described = {part.id: part.description for part in found}
    assert described["stem"].endswith("padding=(1, 1)), relu")
    assert described["blocks.0.bn2"].endswith(("True), add", "True), iadd"))
    assert described["blocks.0.relu#2"] == "ReLU(inplace=True), mean, flatten"


def test_sizes_are_those_of_the_output_of_a_layer():
    found = {p.id: p for p in parts(ResNet(), torch.ones(2, 3, 8, 8))}
    image = 2 * 8 * 8 * 8 * 4
    sizes = {name: part.activation_bytes for name, part in found.items()}
    last = {"blocks.0.relu#2": 2 * 8 * 4, "head": 2 * 10 * 4}
    assert sizes == dict.fromkeys(found, image) | last
    weights = {name: part.parameter_bytes for name, part in found.items()}
    assert weights == {
        "stem": (8 * 3 * 9 + 8) * 4,
        "blocks.0.conv1": 8 * 8 * 9 * 4,
        "blocks.0.bn1": 2 * 8 * 4,
        "blocks.0.relu": 0,
        "blocks.0.conv2": 8 * 8 * 9 * 4,
        "blocks.0.bn2": 2 * 8 * 4,
        "blocks.0.relu#2": 0,
        "head": (8 * 10 + 10) * 4,
    }


def test_two_towers():
    found = parts(TwoTowers(), torch.ones(3, 4), torch.ones(3, 6))
    assert edges(found) == {("left", "right"), ("right", "both")}
    sizes = {part.id: part.activation_bytes for part in found}
    # The concatenation belongs to the later tower, so its output contains both results.
    assert sizes == {"left": 3 * 8 * 4, "right": 3 * 16 * 4, "both": 3 * 2 * 4}


def test_several_outputs_of_a_layer_and_parameters_without_a_module():
    found = parts(Language(), torch.zeros(2, 7, dtype=torch.int64))
    sizes = {part.id: part.activation_bytes for part in found}
    sequence, state = 2 * 7 * 16 * 4, 2 * 16 * 4
    assert sizes == {
        "embed": sequence,
        "first": sequence + 2 * state,
        "second": sequence,  # its state is not used
        "head": 2 * 7 * 50 * 4,
    }
    weights = {part.id: part.parameter_bytes for part in found}
    assert weights["embed"] == (50 * 16 + 7 * 16) * 4
    assert weights["first"] == (4 * 16 * (16 + 16) + 8 * 16) * 4
    assert edges(found) == {("embed", "first"), ("first", "second"), ("second", "head")}


def test_a_layer_can_be_called_again_with_another_shape():
    def forward(self, x):
        return self.relu(self.second(self.relu(self.first(x)))) + torch.ones(3, 2)

    model = small(
        forward, first=nn.Linear(4, 8), relu=nn.ReLU(), second=nn.Linear(8, 2)
    )
    sizes = {p.id: p.activation_bytes for p in parts(model, torch.ones(3, 4))}
    assert sizes == {"first": 96, "relu": 96, "second": 24, "relu#2": 24}


def test_bytes_depend_on_the_dtype():
    model = nn.Sequential(nn.Linear(4, 8)).to(torch.bfloat16)
    (part,) = parts(model, torch.ones(3, 4, dtype=torch.bfloat16))
    assert (part.activation_bytes, part.parameter_bytes) == (3 * 8 * 2, (4 * 8 + 8) * 2)


def test_two_views_of_the_same_memory_count_once():
    def forward(self, x):
        y = self.make(x)
        return self.take(y), self.take_flat(y.view(-1))

    model = small(
        forward, make=nn.Linear(4, 4), take=nn.Linear(4, 1), take_flat=nn.Linear(12, 1)
    )
    found = {part.id: part for part in parts(model, torch.ones(3, 4))}
    assert found["make"].activation_bytes == 3 * 4 * 4


def test_expensive_operations_are_layers_named_by_their_module():
    def attend(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = functional.softmax(torch.matmul(q, k.transpose(1, 2)), dim=-1)
        return torch.matmul(weights, v)

    attention = small(attend, qkv=nn.Linear(4, 12))
    found = parts(nn.Sequential(attention), torch.ones(2, 3, 4))
    assert [part.id for part in found] == ["0.qkv", "0.matmul", "0.matmul#2"]
    assert found[0].description == (
        "Linear(in_features=4, out_features=12, bias=True), chunk, transpose"
    )
    assert edges(found) == {
        ("0.qkv", "0.matmul"), ("0.qkv", "0.matmul#2"), ("0.matmul", "0.matmul#2"),
    }  # fmt: skip
    assert found[1].description == "matmul, softmax"


def test_values_that_need_only_inputs_or_parameters_are_recomputed():
    def forward(self, x):
        doubled, bias = x * 2, self.bias.abs() + 1
        y = self.first(doubled)
        return self.second(y + bias + torch.zeros(4)) + doubled

    model = small(
        forward,
        first=nn.Linear(4, 4),
        second=nn.Linear(4, 4),
        bias=nn.Parameter(torch.ones(4)),
    )
    found = parts(model, torch.ones(3, 4))
    assert edges(found) == {("first", "second")}
    assert [part.parameter_bytes for part in found] == [(16 + 4 + 4) * 4, (16 + 4) * 4]
    assert [len(part.inputs) for part in found] == [1, 2]


def test_an_operation_on_data_and_a_parameter_is_a_layer():
    def forward(self, x):
        x = x + self.bias
        return self.first(x) + self.second(x)

    model = small(
        forward,
        bias=nn.Parameter(torch.ones(4)),
        first=nn.Linear(4, 4),
        second=nn.Linear(4, 4),
    )
    found = parts(model, torch.ones(3, 4))
    assert [part.id for part in found] == ["add", "first", "second"]
    assert found[0].parameter_bytes == 4 * 4


def test_a_value_changed_in_place_comes_from_the_layer_that_changed_it():
    def forward(self, x):
        y = self.make(x)
        self.change(y)
        return self.take(y)

    model = small(
        forward,
        make=nn.Linear(4, 4),
        change=nn.ReLU(inplace=True),
        take=nn.Linear(4, 2),
    )
    found = parts(model, torch.ones(3, 4))
    assert edges(found) == {("make", "change"), ("change", "take")}
    assert [part.activation_bytes for part in found] == [48, 48, 24]


def test_a_layer_that_changes_a_view_is_merged_with_the_maker_of_the_value():
    def forward(self, x):
        y = self.make(x)
        self.change(y[:, :1])
        return self.take(y)

    model = small(
        forward,
        make=nn.Linear(4, 4),
        change=nn.ReLU(inplace=True),
        take=nn.Linear(4, 2),
    )
    found = parts(model, torch.ones(3, 4))
    assert edges(found) == {("make", "take")}
    assert [part.activation_bytes for part in found] == [48, 24]
    profile = pipeline.profile_model(model, torch.ones(3, 4), repeats=1, warm_up=0)
    assert [layer.id for layer in profile.layers] == ["make", "take"]


def test_a_new_tensor_filled_by_a_layer_is_an_output_of_it():
    def forward(self, x):
        filled = torch.zeros(3, 4)
        flat = filled.view(-1)
        filled[:, :2].add_(self.first(x))
        return self.second(filled) + self.third(flat).sum()

    model = small(
        forward, first=nn.Linear(4, 2), second=nn.Linear(4, 2), third=nn.Linear(12, 1)
    )
    found = parts(model, torch.ones(3, 4))
    assert edges(found) == {
        ("first", "second"), ("first", "third"), ("second", "third"),
    }  # fmt: skip
    assert found[0].activation_bytes == 48
    profile = pipeline.profile_model(model, torch.ones(3, 4), repeats=1, warm_up=0)
    assert all(layer.backward_ms > 0 for layer in profile.layers)


def test_elementwise_operations_are_known_by_their_tag():
    def forward(self, x):
        return self.second(torch.sinh(self.first(x)))

    model = small(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4))
    assert [part.id for part in parts(model, torch.ones(3, 4))] == ["first", "second"]


def test_layers_that_share_a_parameter_are_refused_or_merged():
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    with pytest.raises(
        ConfigError,
        match=r'layers "embed", "head" share the parameter "embed\.weight" \(also '
        r'"head\.weight"\).* shared=\'merge\'',
    ):
        parts(Language(tied=True), tokens)
    (part,) = parts(Language(tied=True), tokens, shared="merge")
    assert part.id == "embed..head"
    assert part.description.startswith(
        'one layer, since "embed", "head" share "embed.weight" (also "head.weight"): '
        "Embedding(50, 16), add, "
    )
    model = Language(tied=True)
    assert part.parameter_bytes == sum(4 * p.numel() for p in model.parameters())


def test_layers_that_share_a_parameter_can_be_kept_apart():
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    model = Language(tied=True)
    found = {part.id: part.parameters for part in parts(model, tokens, shared="keep")}
    assert any(p is model.embed.weight for p in found["embed"])
    assert any(p is model.embed.weight for p in found["head"])


def test_a_module_called_twice_shares_a_parameter_with_itself():
    def forward(self, x):
        return self.after(self.twice(self.between(self.twice(x))))

    model = small(
        forward,
        twice=nn.Linear(4, 4),
        between=nn.ReLU(),
        after=nn.Linear(4, 4),
    )
    with pytest.raises(ConfigError, match='layers "twice", "twice#2" share'):
        parts(model, torch.ones(2, 4))
    found = parts(model, torch.ones(2, 4), shared="merge")
    assert [part.id for part in found] == ["twice..twice#2", "after"]
    assert found[0].parameter_bytes == (16 + 4) * 4


def test_a_parameter_used_in_two_places_without_a_module_is_shared():
    def forward(self, x):
        return self.second(self.first(x) * self.scale) * self.scale

    model = small(
        forward,
        first=nn.Linear(4, 4),
        second=nn.Linear(4, 4),
        scale=nn.Parameter(torch.ones(4)),
    )
    with pytest.raises(ConfigError, match=r'"first", "second" share .* "scale"'):
        parts(model, torch.ones(2, 4))


def test_no_description_begins_like_an_input_that_the_partitioner_removes():
    class InputProjection(nn.Linear):
        pass

    model = nn.Sequential(InputProjection(4, 4), nn.Linear(4, 4))
    found = parts(model, torch.ones(2, 4))
    assert found[0].description.startswith("a InputProjection(")
    profile = pipeline.profile_model(model, torch.ones(2, 4), repeats=1, warm_up=0)
    plan = pipeline.partition(profile, machines=2, bandwidth=1e9, straight=True)
    assert [stage.layers for stage in plan.stages] == [["0"], ["1"]]


def test_the_description_of_a_whole_layer_omits_its_inside():
    found = parts(ResNet(), torch.ones(2, 3, 8, 8), whole=("blocks.*",))
    assert [part.id for part in found] == ["stem", "blocks.0", "head"]
    assert found[1].description == "Residual(...), mean, flatten"


class _Random(nn.Module):
    """Each step takes earlier values: a layer, a sum, or a product of matrices."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in steps)

    def forward(self, x):
        values = [self.layers[0](x)]
        for (kind, a, b), layer in zip(self.steps, self.layers, strict=True):
            left, right = values[a % len(values)], values[b % len(values)]
            if kind == "layer":
                values.append(layer(left))
            elif kind == "add":
                values.append(left + right)
            elif kind == "change":
                values.append(left.clone().add_(right).relu_())
            else:
                values.append(torch.matmul(left, right))
        return sum(values)

    def needs(self):
        """Layer that is called -> layers before it on which it depends."""
        values, found = [{0}], {0: set()}
        for i, (kind, a, b) in enumerate(self.steps):
            left, right = values[a % len(values)], values[b % len(values)]
            if kind == "layer":
                found.setdefault(i, set()).update(left)
                values.append(left | {i})
            else:
                values.append(left | right)
        return found


_STEPS = st.tuples(
    st.sampled_from(["layer", "add", "change", "matmul"]),
    st.integers(0, 9),
    st.integers(0, 9),
)


@settings(max_examples=60)
@given(st.lists(_STEPS, min_size=1, max_size=10))
def test_layers_of_any_graph_depend_on_each_other_as_in_the_model(steps):
    # The first layer makes the first value. Calling it again would share its
    # parameters.
    steps = [("add", 0, 0), *steps]
    model = _Random(steps)
    found = parts(model, torch.ones(2, 2))
    layers = [_C.Layer(part.id) for part in found]
    _C.Profile(layers, list(edges(found)))  # refuses cycles
    order = {part.id: i for i, part in enumerate(found)}
    assert all(order[a] < order[b] for a, b in edges(found))
    above = {part.id: {part.id} for part in found}
    for part in found:
        for other in part.needs:
            above[part.id] |= above[other.id]
    for i, needed in model.needs().items():
        for j in needed:
            assert f"layers.{j}" in above[f"layers.{i}"]
    called = len(model.needs())
    assert sum(part.parameter_bytes for part in found) == called * (4 + 2) * 4
