# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import random
import time

import pytest
import torch
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.plan import _profile
from aikido_torch.profile import _profiler
from aikido_torch.profile._timing import CpuStopwatch
from harness.layered_models import (
    BranchesInTime,
    BranchesOnData,
    Language,
    ManualClock,
    ResNet,
    Spender,
    TwoTowers,
)

QUICK = {"repeats": 1, "warm_up": 0}


def times(profile):
    return {x.id: (x.forward_ms, x.backward_ms) for x in profile.layers}


@pytest.mark.parametrize("way", ["chain", "export"])
def test_a_chain_has_the_times_of_its_layers(way):
    clock = ManualClock()
    model = nn.Sequential(
        Spender(0.001, 0.002, spend=clock.spend),
        nn.ReLU(),
        Spender(0.003, 0.005, spend=clock.spend),
    )
    measured = pipeline.measure_model(
        model, torch.ones(4, 2), trace=way, stopwatch=CpuStopwatch(clock)
    )
    assert measured.trace == way
    assert measured.profile.edges == [("0", "1"), ("1", "2")]
    found = times(measured.profile)
    assert found["0"] == pytest.approx((1, 2))
    assert found["1"] == (0, 0)
    assert found["2"] == pytest.approx((3, 5))
    assert measured.whole_forward_ms == pytest.approx(4)
    assert measured.whole_backward_ms == pytest.approx(7)
    assert measured.ratio == pytest.approx(1)


def test_branches_have_the_times_of_their_layers():
    clock = ManualClock()
    model = BranchesInTime(
        [(0.001, 0.002), (0.004, 0.008), (0.003, 0.003)], spend=clock.spend
    )
    measured = pipeline.measure_model(
        model, torch.ones(4, 2), trace="export", stopwatch=CpuStopwatch(clock)
    )
    found = times(measured.profile)
    assert found["left"] == pytest.approx((1, 2))
    assert found["right"] == pytest.approx((4, 8))
    assert found["after"] == pytest.approx((3, 3))
    assert measured.ratio == pytest.approx(1)


@pytest.mark.alone
def test_sleeping_layers_have_the_time_of_the_real_clock(record_property):
    # The sleeps are long, so that a late wake-up on a busy machine does not matter.
    spent = [(0.06, 0.12), (0.12, 0.06)]
    model = nn.Sequential(*(Spender(*times, spend=time.sleep) for times in spent))
    measured = pipeline.measure_model(model, torch.ones(4, 2), repeats=3, warm_up=0)
    for layer, (forward, backward) in zip(measured.profile.layers, spent, strict=True):
        assert layer.forward_ms == pytest.approx(forward * 1e3, rel=0.15)
        assert layer.backward_ms == pytest.approx(backward * 1e3, rel=0.15)
    record_property("ratio", measured.ratio)
    assert measured.ratio == pytest.approx(1, rel=0.15)


def test_layers_together_take_about_as_long_as_the_model(record_property):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = nn.Sequential(
            *(m for _ in range(4) for m in (nn.Linear(512, 512), nn.ReLU()))
        )
        # CPU time of this thread, because a busy machine interrupts long runs.
        watch = CpuStopwatch(time.thread_time)
        measured = pipeline.measure_model(
            model, torch.randn(128, 512), repeats=15, stopwatch=watch
        )
    finally:
        torch.set_num_threads(threads)
    print(f"layers together: {measured.ratio:.2f} times the model")
    record_property("ratio", measured.ratio)
    assert 0.5 < measured.ratio < 2
    # The backward of a linear layer has two matrix products, that of the first only
    # one.
    linear = [x for x in measured.profile.layers if x.parameter_bytes]
    assert linear[0].backward_ms < linear[1].backward_ms


def test_sizes_of_a_chain_are_exact():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 5)
    )
    profile = pipeline.profile_model(model, torch.ones(2, 3, 4, 4), **QUICK)
    sizes = [(x.activation_bytes, x.parameter_bytes) for x in profile.layers]
    image = 2 * 4 * 2 * 2 * 4
    assert sizes == [
        (image, (4 * 27 + 4) * 4),
        (image, 0),
        (image, 0),
        (2 * 5 * 4, (16 * 5 + 5) * 4),
    ]


def test_a_micro_batch_is_a_slice_of_the_sample():
    whole = pipeline.profile_model(TwoTowers(), (torch.ones(8, 4), torch.ones(8, 6)))
    part = pipeline.profile_model(
        TwoTowers(), (torch.ones(8, 4), torch.ones(8, 6)), micro_batch=2, **QUICK
    )
    for layer, of_part in zip(whole.layers, part.layers, strict=True):
        assert of_part.activation_bytes * 4 == layer.activation_bytes
        assert of_part.parameter_bytes == layer.parameter_bytes


class Counts(nn.Module):
    """Has a different buffer after each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        return x


def test_the_model_is_restored():
    model = nn.Sequential(ResNet(), nn.Dropout(0.5), Counts())
    model[0].blocks[0].bn1.eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    names = [set(vars(module)) for module in model.modules()]
    buffers = {name: id(b) for name, b in model.named_buffers()}
    x = torch.randn(2, 3, 8, 8)
    before, seeds, python = x.clone(), torch.get_rng_state(), random.getstate()
    with torch.no_grad():
        pipeline.profile_model(model, x, trace="export", **QUICK)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert {name: id(b) for name, b in model.named_buffers()} == buffers
    assert [module.training for module in model.modules()] == modes
    assert [set(vars(module)) for module in model.modules()] == names
    assert all((parameter.grad == 1).all() for parameter in model.parameters())
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), seeds)
    assert random.getstate() == python


def test_the_model_is_restored_after_an_error():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            self.norm(x)
            raise ValueError("not today")

    model = nn.Sequential(nn.Linear(4, 4), Fails()).eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(
        ConfigError,
        match=r"fails with the sample inputs: ValueError: not today, in layer \"1\", "
        r"test_profiler\.py:\d+: `raise ValueError",
    ):
        pipeline.profile_model(model, torch.randn(3, 4))
    assert not any(module.training for module in model.modules())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_buffers_can_change_outside_of_layers():
    class Averages(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            y = self.inner(x)
            self.mean.lerp_(y.detach().mean(0), 0.1)
            self.seen += 1
            return y - self.mean

    model = Averages()
    profile = pipeline.profile_model(model, torch.ones(2, 4), trace="export", **QUICK)
    assert [layer.id for layer in profile.layers] == ["inner"]
    assert (model.mean == 0).all()
    assert model.seen == 0


def test_layers_are_timed_as_in_training():
    modes = []

    class Tells(nn.Linear):
        def forward(self, x):
            modes.append(self.training)
            return super().forward(x)

    pipeline.profile_model(nn.Sequential(Tells(4, 4)).eval(), torch.ones(2, 4))
    assert len(modes) > 10
    assert all(modes)


def test_the_same_model_gives_the_same_layers():
    def layers():
        profile = pipeline.profile_model(ResNet(), torch.ones(2, 3, 8, 8), **QUICK)
        return [
            (x.id, x.description, x.activation_bytes) for x in profile.layers
        ], profile.edges

    assert layers() == layers()


@pytest.mark.parametrize("make", [ResNet, TwoTowers])
def test_a_profile_is_written_read_and_cut(make, tmp_path):
    given = {
        ResNet: torch.ones(2, 3, 8, 8),
        TwoTowers: (torch.ones(2, 4), torch.ones(2, 6)),
    }[make]
    profile = pipeline.profile_model(make(), given, **QUICK)
    _profile.write_profile(tmp_path / "profile.txt", profile)
    again = _profile.read_profile(tmp_path / "profile.txt")
    assert again.text() == profile.text()
    assert times(again) == times(profile)
    plan = pipeline.partition(again, machines=2, bandwidth=1e9, straight=True)
    assert sorted(x for stage in plan.stages for x in stage.layers) == sorted(
        layer.id for layer in profile.layers
    )


def test_a_sequence_of_blocks_is_cut_between_blocks_or_inside():
    model = nn.Sequential(ResNet(), nn.Linear(10, 2))
    x = torch.ones(2, 3, 8, 8)
    coarse = pipeline.measure_model(model, x, **QUICK)
    assert coarse.trace == "chain"
    assert [layer.id for layer in coarse.profile.layers] == ["0", "1"]
    fine = pipeline.measure_model(model, x, trace="export", **QUICK)
    assert len(fine.profile.layers) == 9
    blocks = pipeline.measure_model(
        model, x, trace="export", whole=("0.blocks.*",), **QUICK
    )
    ids = [layer.id for layer in blocks.profile.layers]
    assert ids == ["0.stem", "0.blocks.0", "0.head", "1"]


def test_one_layer_gives_a_profile():
    profile = pipeline.profile_model(nn.Linear(4, 2), torch.ones(3, 4), **QUICK)
    (layer,) = profile.layers
    assert (layer.id, layer.parameter_bytes, layer.activation_bytes) == (
        "Linear", 40, 24,
    )  # fmt: skip


def test_outputs_can_be_in_containers_and_inputs_can_be_named():
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    profile = pipeline.profile_model(Language(), {"tokens": tokens}, **QUICK)
    assert [layer.id for layer in profile.layers] == [
        "embed", "first", "second", "head",
    ]  # fmt: skip
    assert all(layer.backward_ms > 0 for layer in profile.layers)


def test_a_chain_that_cannot_be_traced_is_profiled_as_a_chain():
    measured = pipeline.measure_model(
        BranchesOnData(skips=False), torch.ones(2, 4), **QUICK
    )
    assert measured.trace == "chain"
    assert [layer.id for layer in measured.profile.layers] == ["first", "second"]


def test_a_failed_trace_names_every_attempt_with_its_reason():
    with pytest.raises(ConfigError) as caught:
        pipeline.profile_model(BranchesOnData(skips=True), torch.ones(2, 4))
    text = str(caught.value)
    assert text.startswith("the model cannot be taken apart into layers. By ")
    assert (
        'By "export": what it does next depends on values of tensors, in the '
        "model, layered_models.py:" in text
    )
    assert 'By "chain": child "second" takes something else' in text
    with pytest.raises(ConfigError) as caught:
        pipeline.profile_model(
            BranchesOnData(skips=True), torch.ones(2, 4), trace="export"
        )
    assert "chain" not in str(caught.value)


class Returns(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.what = what

    def forward(self, x):
        return self.what(self.inner(x))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (lambda x: (x, 2.5), r"returns a float as output\[1\]"),
        (lambda x: {"y": [x, "text"]}, r"returns a str as output\['y'\]\[1\]"),
        (lambda x: None, "returns no tensor"),
    ],
)
def test_outputs_that_are_not_tensors_are_named(what, told):
    with pytest.raises(ConfigError, match=told):
        pipeline.profile_model(Returns(what), torch.ones(2, 4))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"repeats": 0}, "repeats is 0; it takes a number from 1 up"),
        ({"warm_up": -1}, "warm_up is -1; it takes a number from 0 up"),
        ({"warm_up": 1.5}, r"warm_up is 1\.5"),
        ({"trace": "jit"}, "trace is 'jit'; it takes auto, chain, export"),
        ({"shared": "copy"}, "shared is 'copy'; it takes refuse, merge"),
        ({"micro_batch": 0}, "micro_batch is 0; it takes a number from 1 up"),
        ({"micro_batch": 3}, r"micro_batch is 3, and input 0 has the shape \[2, 4\]"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, told):
    with pytest.raises(ConfigError, match=told):
        pipeline.profile_model(nn.Linear(4, 4), torch.ones(2, 4), **arguments)


def test_inputs_of_a_wrong_type_or_device_are_named():
    model = nn.Linear(4, 4)
    with pytest.raises(ConfigError, match="sample_inputs is a int; it takes a tensor"):
        pipeline.profile_model(model, 3)
    pair = [torch.ones(1), torch.ones(1, device="meta")]
    with pytest.raises(
        ConfigError, match=r"input x\[1\] is on meta and the model on cpu"
    ):
        pipeline.profile_model(model, {"x": pair})
    meta = torch.ones(2, 4, device="meta")
    with pytest.raises(ConfigError, match="the model is on meta; layers are timed on"):
        pipeline.profile_model(nn.Linear(4, 4, device="meta"), meta)
    split = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    with pytest.raises(
        ConfigError, match=r'several devices: "0\.bias" on cpu, "1\.bias" on meta'
    ):
        pipeline.profile_model(split, torch.ones(2, 4))
    lazy = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(ConfigError, match=r'parameter "0\.weight" has no size yet'):
        pipeline.profile_model(lazy, torch.ones(2, 4))


def test_a_named_device_gets_a_copy_of_the_model():
    model = nn.Sequential(nn.Linear(4, 4))
    profile = pipeline.profile_model(model, torch.ones(2, 4), device="cpu", **QUICK)
    assert [layer.id for layer in profile.layers] == ["0"]
    with pytest.raises(ConfigError, match="the model is on meta"):
        pipeline.profile_model(model, torch.ones(2, 4), device="meta")
    assert model[0].weight.device.type == "cpu"
    for nowhere in ("cuda:99", "nowhere"):
        with pytest.raises(ConfigError, match=f"no copy of the model on {nowhere}: "):
            pipeline.profile_model(model, torch.ones(2, 4), device=nowhere)


@pytest.mark.gpu
def test_a_model_on_a_device_is_timed_there():
    x = torch.randn(64, 2048)
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    measured = pipeline.measure_model(model, x, device="cuda", repeats=20)
    assert model[0].weight.device.type == "cpu"
    assert 0.3 < measured.ratio < 3
    with pytest.raises(ConfigError, match="input 0 is on cpu and the model on cuda:0"):
        pipeline.profile_model(model.cuda(), x)
    state = torch.cuda.get_rng_state()
    pipeline.profile_model(nn.Sequential(model, nn.Dropout()), x.cuda(), **QUICK)
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_measurement_names_the_parameters_of_each_layer():
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    measured = pipeline.measure_model(
        Language(tied=True), tokens, shared="keep", **QUICK
    )
    assert set(measured.parameters["embed"]) == {"embed.weight", "position"}
    assert set(measured.parameters["head"]) == {"embed.weight", "head.bias"}
    with pytest.raises(ConfigError, match="shared is 'keep'; it takes refuse, merge"):
        pipeline.profile_model(Language(), tokens, shared="keep", **QUICK)


def test_layers_are_measured_in_the_order_of_their_calls():
    clock = ManualClock()
    model = BranchesInTime(
        [(0.001, 0.002), (0.004, 0.008), (0.003, 0.003)], spend=clock.spend
    )
    measured = _profiler.measure_calls(
        model, torch.ones(4, 2), stopwatch=CpuStopwatch(clock)
    )
    assert measured.trace == "calls"
    assert measured.profile.edges == [("left", "right"), ("right", "after")]
    found = times(measured.profile)
    assert found["left"] == pytest.approx((1, 2))
    assert found["right"] == pytest.approx((4, 8))
    assert found["after"] == pytest.approx((3, 3))
    assert measured.whole_forward_ms == pytest.approx(8)
    assert measured.whole_backward_ms == pytest.approx(13)
    assert measured.profile.layers[0].parameter_bytes == 4
