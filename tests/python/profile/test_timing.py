# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.profile._evaluate import evaluate, getter_of
from aikido_torch.profile._layers import parts_of
from aikido_torch.profile._recorder import Inputs, layer_rule
from aikido_torch.profile._timing import (
    CpuStopwatch,
    CudaStopwatch,
    Program,
    Times,
    find_gradients,
    measure,
    program_of,
)
from aikido_torch.profile._trace import trace_export
from harness.layered_models import ManualClock, ResNet, Spender


def programs_of(model, *args):
    """Layer id -> program of the layer, ready to be measured."""
    traced = trace_export(model, Inputs(args, {}), layer_rule(()))
    done = evaluate(traced, model)
    parts = parts_of(traced, done, model, shared="refuse")
    programs = [program_of(part, done, getter_of(traced, model)) for part in parts]
    find_gradients(parts, programs, done)
    return dict(zip([part.id for part in parts], programs, strict=True))


def spending(clock, *times):
    return nn.Sequential(
        *(Spender(forward, backward, spend=clock.spend) for forward, backward in times)
    )


def test_a_stopwatch_returns_each_time_once():
    clock = ManualClock()
    watch = CpuStopwatch(clock)
    assert watch.time(lambda: clock.spend(0.25) or "made") == "made"
    watch.time(lambda: clock.spend(0.5))
    clock.spend(7)
    assert watch.read() == [250, 500]
    assert watch.read() == []


def test_layers_are_timed_forward_and_backward():
    clock = ManualClock()
    model = spending(clock, (1, 2), (0.5, 0.25), (0.125, 4))
    programs = programs_of(model, torch.ones(2, 3))
    measured = measure(
        list(programs.values()), CpuStopwatch(clock), warm_up=1, repeats=3
    )
    assert measured == [Times(1000, 2000), Times(500, 250), Times(125, 4000)]


def test_times_are_medians_without_the_warm_up():
    class Slower(Spender):
        def forward(self, x):
            self.forward_s = times.pop(0)
            return super().forward(x)

    clock = ManualClock()
    model = Slower(0, 1, spend=clock.spend)
    times = [9, 9, 9, 9, 3, 1, 2]
    program = Program(model, [torch.ones(2)], model.parameters())
    program.choose_roots()
    (measured,) = measure([program], CpuStopwatch(clock), warm_up=3, repeats=3)
    assert measured == Times(2000, 1000)
    assert times == []


def test_all_layers_run_once_before_any_runs_again():
    order = []
    programs = [
        Program(lambda x, name=name: order.append(name) or x, [torch.ones(1)], [])
        for name in "ab"
    ]
    steps = []
    measure(
        programs, CpuStopwatch(), warm_up=0, repeats=2, advance=lambda: steps.append(0)
    )
    assert order == ["a", "b", "a", "b"]
    assert len(steps) == 4


def test_only_gradients_needed_in_training_are_computed():
    asked = []

    class Asks(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            return x * weight

        @staticmethod
        def backward(context, gradient):
            asked.append(context.needs_input_grad)
            return gradient, gradient.sum()

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return Asks.apply(x, self.weight)

    programs = programs_of(nn.Sequential(Layer(), Layer()), torch.ones(2))
    for program in programs.values():
        asked.clear()
        program.time(CpuStopwatch())
        if program is programs["0"]:
            assert asked == [(False, True)]  # none for the input data
        else:
            assert asked == [(True, True)]


def test_integers_and_layers_before_frozen_layers_have_no_backward():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    programs = programs_of(model, torch.zeros(2, 3, dtype=torch.int64))
    backward = {name: program.has_backward for name, program in programs.items()}
    assert backward == {"0": False, "1": False, "2": True}
    assert programs["1"].time(CpuStopwatch()) == 1
    assert programs["2"].time(CpuStopwatch()) == 2


def test_a_branch_without_a_gradient_has_no_backward():
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.aside = nn.Linear(4, 4)
            self.last = nn.Linear(4, 4)

        def forward(self, x):
            x = self.first(x)
            self.aside(x)
            return self.last(x)

    programs = programs_of(Aside(), torch.ones(2, 4))
    assert {name for name, p in programs.items() if not p.has_backward} == {"aside"}


def test_in_place_operations_have_the_same_inputs_in_each_run():
    given = torch.tensor([-1.0, 2.0], requires_grad=True)
    program = Program(nn.ReLU(inplace=True), [given], [])
    assert program.choose_roots() == [True]
    for _ in range(3):
        assert program.time(CpuStopwatch()) == 2
        assert program.outputs()[0].tolist() == [0, 2]
    assert given.tolist() == [-1, 2]
    assert given.grad is None


def test_code_without_gradients_inside_a_layer_runs_without_gradients():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(4, 4)
            self.last = nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                x = self.frozen(x) + 1
            return self.last(x)

    programs = programs_of(Half(), torch.ones(2, 4))
    assert not programs["frozen"].has_backward
    assert not any(tensor.requires_grad for tensor in programs["frozen"].outputs())
    assert torch.is_grad_enabled()
    assert programs["last"].has_backward


class Argmax(nn.Module):
    def forward(self, x):
        return x.argmax(dim=-1)


def test_a_layer_without_a_gradient_in_training_is_named():
    model = nn.Sequential(nn.Linear(4, 4), Argmax(), nn.Embedding(4, 4))
    with pytest.raises(
        ConfigError,
        match=r'layer "1" \(Argmax\(\)\) returns nothing that a gradient can come back '
        r'through \(torch\.int64\), so that layer "0" cannot be trained',
    ):
        programs_of(model, torch.ones(2, 4))
    model[0].requires_grad_(False)
    assert len(programs_of(model, torch.ones(2, 4))) == 3


def test_a_failing_backward_is_named():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise RuntimeError("no way back")

    class Layer(nn.Module):
        def forward(self, x):
            return Fails.apply(x)

    model = nn.Sequential(nn.Linear(4, 4), Layer())
    with pytest.raises(ConfigError, match=r'backward of layer "1" .*: no way back'):
        programs_of(model, torch.ones(2, 4))


@pytest.mark.gpu
def test_times_on_a_device_are_device_times():
    device = torch.device("cuda", 0)
    x = torch.randn(4096, 4096, device=device)

    def products(count):
        def run():
            y = x
            for _ in range(count):
                y = torch.mm(y, x)
            return y

        return run

    watch = CudaStopwatch(device)
    for count in (1, 1, 10):
        watch.time(products(count))
    _, one, ten = watch.read()
    assert 8 < ten / one < 12
    assert watch.read() == []
    model = ResNet().to(device)
    programs = programs_of(model, torch.ones(4, 3, 32, 32, device=device))
    times = measure(list(programs.values()), watch, warm_up=1, repeats=3)
    assert all(t.forward_ms > 0 and t.backward_ms > 0 for t in times)
