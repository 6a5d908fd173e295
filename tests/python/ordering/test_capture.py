# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import warnings

import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.ordering import LinkCost, capture_chain, capture_graph, simulate, tac
from aikido_torch.ordering._capture import captured_of
from aikido_torch.ordering._orders import tic
from aikido_torch.profile import _profiler
from aikido_torch.profile._timing import CpuStopwatch
from harness.layered_models import (
    BranchesOnData,
    Language,
    ManualClock,
    ResNet,
    Spender,
    TwoTowers,
)

QUICK = {"repeats": 1, "warm_up": 0}
LINK = LinkCost(alpha_s=0, beta_s=0.001)  # 4 ms for a float
TOKENS = torch.zeros(2, 7, dtype=torch.int64)


def captured_in_time(measure, model, sample, **options):
    """By a clock that only layers move."""
    clock = next(m.spend.__self__ for m in model.modules() if isinstance(m, Spender))
    watch = CpuStopwatch(clock)
    return captured_of(model, measure(model, sample, stopwatch=watch, **options))


def three_layers():
    spend = ManualClock().spend
    return nn.Sequential(*(Spender(s, 2 * s, spend=spend) for s in (0.1, 0.2, 0.4)))


@pytest.mark.parametrize("way", ["graph", "chain"])
def test_a_chain_has_times_and_bytes_of_its_layers(way):
    model = three_layers()
    if way == "graph":
        captured = captured_in_time(
            pipeline.measure_model, model, torch.ones(4), shared="keep"
        )
    else:
        captured = captured_in_time(_profiler.measure_calls, model, torch.ones(4))
    assert [x.name for x in captured.layers] == ["0", "1", "2"]
    assert [x.needs for x in captured.layers] == [(), ("0",), ("1",)]
    assert [x.forward_s for x in captured.layers] == pytest.approx([0.1, 0.2, 0.4])
    assert [x.backward_s for x in captured.layers] == pytest.approx([0.2, 0.4, 0.8])
    assert captured.bytes == {"0.scale": 4, "1.scale": 4, "2.scale": 4}
    assert captured.left_out == ()


def test_an_iteration_is_a_backward_pass_and_the_next_forward():
    captured = captured_in_time(
        pipeline.measure_model, three_layers(), torch.ones(4), shared="keep"
    )
    graph = captured.iteration_graph(LINK)
    assert [op.name for op in graph.ops] == [
        "backward 2", "backward 1", "backward 0", "0.scale", "1.scale", "2.scale",
        "forward 0", "forward 1", "forward 2",
    ]  # fmt: skip
    assert set(graph.edges) == {
        ("backward 2", "backward 1"), ("backward 1", "backward 0"),
        ("backward 2", "2.scale"), ("backward 1", "1.scale"),
        ("backward 0", "0.scale"), ("backward 0", "forward 0"),
        ("0.scale", "forward 0"), ("1.scale", "forward 1"), ("2.scale", "forward 2"),
        ("forward 0", "forward 1"), ("forward 1", "forward 2"),
    }  # fmt: skip
    timeline = simulate(graph, tac(graph))
    # All but the last gradient, 4 ms, is hidden behind the backward.
    assert timeline.makespan_s == pytest.approx(1.4 + 0.004 + 0.7)
    forward = captured.forward_graph(LINK)
    assert tac(forward).transfers == ("0.scale", "1.scale", "2.scale")
    assert simulate(forward, tac(forward)).makespan_s == pytest.approx(0.004 + 0.7)


class Branches(nn.Module):
    """A layer that takes what two others make."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)
        self.both = nn.Bilinear(4, 4, 2)

    def forward(self, x):
        return self.both(self.left(x), self.right(x))


def test_branches_are_seen_by_the_graph_and_not_by_the_chain():
    graph = capture_graph(Branches(), torch.ones(2, 4), **QUICK)
    assert [x.needs for x in graph.layers] == [(), (), ("left", "right")]
    chain = capture_chain(Branches(), torch.ones(2, 4), **QUICK)
    assert [x.needs for x in chain.layers] == [(), ("left",), ("right",)]
    # The next forward begins when the whole backward is done.
    ends = {
        (f"backward {a}", f"forward {b}")
        for a in ("left", "right")
        for b in ("left", "right")
    }
    assert ends <= set(graph.iteration_graph(LINK).edges)


def test_a_shared_parameter_is_one_transfer_that_its_first_user_needs():
    captured = capture_graph(Language(tied=True), TOKENS, **QUICK)
    assert captured.trace == "export"
    by_name = {x.name: x.parameters for x in captured.layers}
    assert "embed.weight" in by_name["embed"]
    assert "embed.weight" in by_name["head"]
    graph = captured.iteration_graph(LINK)
    assert graph.transfers.count("embed.weight") == 1
    assert {
        ("backward embed", "embed.weight"), ("backward head", "embed.weight"),
        ("embed.weight", "forward embed"), ("embed.weight", "forward head"),
    } <= set(graph.edges)  # fmt: skip
    assert tic(captured.forward_graph(LINK)).transfers[0] in (
        "embed.weight", "position",
    )  # fmt: skip


@pytest.mark.parametrize("capture", [capture_graph, capture_chain])
def test_frozen_and_unused_parameters_have_no_transfer(capture):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.unused = nn.Linear(4, 4)
            self.last = nn.Linear(4, 4, bias=False)
            self.never = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.last(self.first(x))

    model = Model()
    model.first.bias.requires_grad_(False)
    captured = capture(model, torch.ones(2, 4), **QUICK)
    assert captured.bytes == {"first.weight": 64, "last.weight": 64}
    assert sorted(captured.left_out) == [
        "first.bias", "never", "unused.bias", "unused.weight",
    ]  # fmt: skip


def test_parameters_that_no_layer_has_count_for_the_first_layer_in_their_module():
    captured = capture_chain(Language(), TOKENS, **QUICK)
    by_name = {x.name: x.parameters for x in captured.layers}
    assert by_name["embed"] == ("embed.weight", "position")
    assert captured.trace == "calls"


def test_a_model_that_is_one_layer_is_captured():
    captured = capture_chain(nn.Linear(3, 3), torch.ones(2, 3), **QUICK)
    (layer,) = captured.layers
    assert layer.name == "Linear"
    assert layer.parameters == ("weight", "bias")


def test_a_layer_that_is_called_twice_is_there_twice():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice = nn.Linear(4, 4)

        def forward(self, x):
            return self.twice(self.twice(x).relu())

    captured = capture_chain(Model(), torch.ones(2, 4), **QUICK)
    assert [x.name for x in captured.layers] == ["twice", "twice#2"]
    assert captured.layers[1].parameters == ("twice.weight", "twice.bias")
    assert len(captured.iteration_graph(LINK).transfers) == 2


def test_a_model_that_cannot_be_traced_is_a_chain_with_a_warning():
    model = BranchesOnData(skips=True)
    with pytest.warns(UserWarning, match="taken for a chain") as caught:
        captured = capture_graph(model, torch.ones(2, 4), **QUICK)
    texts = {str(warning.message).partition(":")[0] for warning in caught}
    assert len(texts) == 2  # the other one names the values that the model reads
    assert captured.trace == "calls"
    assert [x.name for x in captured.layers] == ["first", "second"]


@pytest.mark.parametrize("capture", [capture_graph, capture_chain])
def test_the_model_is_left_as_it_was(capture):
    model = ResNet().eval()
    model.stem.bias.grad = torch.ones(8)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured = capture(model, torch.randn(2, 3, 8, 8), **QUICK)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(module.training for module in model.modules())
    assert torch.equal(model.stem.bias.grad, torch.ones(8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert set(captured.bytes) == {name for name, _ in model.named_parameters()}


class _Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise RuntimeError("no way back")


class Broken(nn.Linear):
    """A layer that cannot be trained."""

    def forward(self, x):
        return _Broken.apply(super().forward(x))


@pytest.mark.parametrize("capture", [capture_graph, capture_chain])
def test_a_model_whose_backward_fails_is_refused(capture):
    model = nn.Sequential(nn.Linear(2, 2), Broken(2, 2))
    with pytest.raises(ConfigError, match=r"the backward of .* fails: no way back"):
        capture(model, torch.ones(3, 2), **QUICK)


def test_several_inputs_are_taken_by_name_or_place():
    sample = {"left": torch.ones(2, 4), "right": torch.ones(2, 6)}
    for capture in (capture_graph, capture_chain):
        captured = capture(TwoTowers(), sample, **QUICK)
        assert [x.name for x in captured.layers][:2] == ["left", "right"]


@pytest.mark.parametrize("capture", [capture_graph, capture_chain])
def test_a_model_that_fails_with_the_sample_is_refused(capture):
    with pytest.raises(ConfigError, match="the model fails with the sample inputs"):
        capture(nn.Linear(3, 3), torch.ones(2, 5), **QUICK)
    with pytest.raises(ConfigError, match="repeats is 0"):
        capture(nn.Linear(3, 3), torch.ones(2, 3), repeats=0)
