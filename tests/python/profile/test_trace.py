# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.profile import _trace
from aikido_torch.profile._recorder import Inputs, layer_rule
from harness.layered_models import BranchesOnData, Language, ResNet, Spender, TwoTowers

WAYS = {
    "chain": _trace.trace_chain,
    "export": _trace.trace_export,
}


def trace(way, model, *args, whole=(), **kwargs):
    return WAYS[way](model, Inputs(args, kwargs), layer_rule(whole))


def why_not(way, model, *args, **kwargs):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        trace(way, model, *args, **kwargs)
    return _trace.reason_of(caught.value, model)


def calls(traced):
    """Layers in order, with the layers that they depend on, also indirectly."""
    found = []
    sources = {}
    for entry in traced.graph.nodes:
        before = {s for e in entry.all_input_nodes for s in sources[e]}
        if entry.op == "call_module":
            found.append((entry.target, sorted(before)))
            before = {entry.target}
        sources[entry] = before
    return found


@pytest.mark.parametrize("way", WAYS)
def test_layers_of_a_sequence_follow_each_other(way):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    traced = trace(way, model, torch.ones(3, 4))
    assert traced.way == way
    assert calls(traced) == [("0", []), ("1.0", ["0"]), ("1.1", ["1.0"])]


def test_branches_are_traced():
    traced = trace("export", TwoTowers(), torch.ones(3, 4), torch.ones(3, 6))
    assert calls(traced) == [("left", []), ("right", []), ("both", ["left", "right"])]
    traced = trace("export", ResNet(), torch.ones(3, 3, 8, 8))
    block = [f"blocks.0.{name}" for name in ("conv1", "bn1", "relu", "conv2", "bn2")]
    conv1, bn1, relu, conv2, bn2 = block
    assert calls(traced) == [
        ("stem", []), (conv1, ["stem"]), (bn1, [conv1]), (relu, [bn1]),
        (conv2, [relu]), (bn2, [conv2]), (relu, [bn2, "stem"]), ("head", [relu]),
    ]  # fmt: skip


@pytest.mark.parametrize("order", [("tokens", "scale"), ("scale", "tokens")])
def test_arguments_can_be_keywords_in_any_order(order):
    given = {
        "tokens": torch.zeros(2, 7, dtype=torch.int64),
        "scale": torch.ones(2, 7, 1),
    }
    traced = trace("export", Language(), **{name: given[name] for name in order})
    by_name = {
        entry.name: tuple(value.shape)
        for entry, value in zip(
            traced.graph.find_nodes(op="placeholder"), traced.inputs, strict=True
        )
    }
    assert by_name == {"tokens": (2, 7), "scale": (2, 7, 1)}


def test_arguments_can_be_defaults_and_values_that_are_not_tensors():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x, times=1, pair=None, *, flag=True):
            for _ in range(times):
                x = self.inner(x)
            return x + pair[0] if flag and pair is not None else x

    x = torch.ones(2, 4)
    assert len(calls(trace("export", Many(), x))) == 1
    assert len(calls(trace("export", Many(), x, 2))) == 2
    traced = trace("export", Many(), x, times=3, pair=(torch.ones(4), torch.ones(4)))
    assert len(calls(traced)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_the_inside_of_a_layer_is_not_traced(way):
    class Odd(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    model = nn.Sequential(nn.Linear(4, 4), Odd(), Spender(0, 0))
    traced = trace(way, model, torch.ones(3, 4))
    assert [path for path, _ in calls(traced)] == ["0", "1", "2"]


@pytest.mark.parametrize("way", WAYS)
def test_the_model_is_unchanged_after_the_trace(way):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    trace(way, model, torch.ones(3, 4))
    after = {name: dict(vars(module)) for name, module in model.named_modules()}
    assert {n: v.keys() for n, v in after.items()} == {
        n: v.keys() for n, v in before.items()
    }


def test_code_without_gradients_is_marked():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                x = self.first(x) * 2
            return self.second(x)

    traced = trace("export", Frozen(), torch.ones(2, 4))
    assert calls(traced) == [("first", []), ("second", ["first"])]
    marks = {
        str(entry.target): entry.meta["no_grad"]
        for entry in traced.graph.nodes
        if entry.op == "call_module"
    }
    assert marks == {"first": True, "second": False}


def test_a_chain_can_view_its_values_between_layers():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(1, 2, 3)
            self.second = nn.Linear(8, 2)

        def forward(self, x):
            return self.second(self.first(x).flatten(1))

    traced = trace("chain", Views(), torch.ones(3, 1, 4, 4))
    assert calls(traced) == [("first", []), ("second", ["first"])]


def test_a_model_that_is_no_chain_is_explained_with_the_layer():
    assert why_not("chain", TwoTowers(), torch.ones(3, 4), torch.ones(3, 6)) == (
        'child "right" takes something else than what child "left" returned'
    )
    model = BranchesOnData(skips=True)
    assert why_not("chain", model, torch.ones(3, 4)) == (
        'child "second" takes something else than what child "first" returned'
    )

    class Doubles(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) * 2

    assert why_not("chain", Doubles(), torch.ones(3, 4)) == (
        'the model returns something else than what child "inner" returned'
    )

    class Idle(Doubles):
        def forward(self, x):
            return x

    assert why_not("chain", Idle(), torch.ones(3, 4)) == "it calls none of its children"


def test_control_flow_that_depends_on_data_is_named(capfd):
    model = nn.Sequential(nn.ReLU(), BranchesOnData(skips=True))
    reason = why_not("export", model, torch.ones(3, 4))
    assert reason.startswith(
        'what it does next depends on values of tensors, in layer "1", '
        "layered_models.py:"
    )
    assert reason.endswith(": `if inner.sum() > 1e9:`")
    assert capfd.readouterr().err == ""


def test_blocks_of_autocast_are_named_as_the_obstacle():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(x)

    assert "such as one of torch.autocast" in why_not(
        "export", Mixed(), torch.ones(2, 4)
    )


def test_an_argument_that_a_graph_cannot_hold_is_named():
    class Takes(nn.Module):
        def forward(self, x, what):
            return x

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Takes()

        def forward(self, x):
            return self.inner(x, object())

    assert why_not("export", Outer(), torch.ones(2)) == (
        'layer "inner" is called with a object'
    )
