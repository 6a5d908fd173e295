# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.profile._evaluate import evaluate, getter_of, tensors_in
from aikido_torch.profile._recorder import Inputs, layer_rule
from aikido_torch.profile._trace import NotTracedError, trace_chain, trace_export
from harness.layered_models import Language, Residual


def run(model, *args, way=trace_export):
    traced = way(model, Inputs(args, {}), layer_rule(()))
    return traced, evaluate(traced, model)


def named(traced, name):
    return next(e for e in traced.graph.nodes if e.target == name)


def test_values_are_kept_without_a_graph_and_with_their_need_of_gradients():
    traced, done = run(Language(), torch.zeros(2, 7, dtype=torch.int64))
    output = done.values[named(traced, "first")]
    assert [list(t.shape) for t in tensors_in(output)] == [
        [2, 7, 16], [1, 2, 16], [1, 2, 16],
    ]  # fmt: skip
    assert all(t.is_leaf and t.requires_grad for t in tensors_in(output))
    (tokens,) = traced.graph.find_nodes(op="placeholder")
    assert not done.values[tokens].requires_grad
    assert len(done.outputs) == 3  # the logits, and the state of two tensors


def test_the_writer_of_a_value_is_the_layer_that_changed_it_in_place():
    class Ignores(nn.Module):
        def __init__(self):
            super().__init__()
            self.make = nn.Linear(4, 4)
            self.change = nn.ReLU(inplace=True)
            self.take = nn.Linear(4, 4)

        def forward(self, x):
            y = self.make(x)
            self.change(y.view(-1))  # its result is not used
            return self.take(y)

    traced, done = run(Ignores(), torch.ones(2, 4))
    make, change, take = (named(traced, n) for n in ("make", "change", "take"))
    (use,) = done.uses[take]
    assert use.value in (make, *make.users)
    assert use.writer is change


def test_inputs_and_buffers_that_the_model_changes_are_copies():
    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.BatchNorm1d(4)

        def forward(self, x):
            x += 1
            return self.inner(x)

    model, x = Changes(), torch.zeros(2, 4)
    traced = trace_export(model, Inputs((x.clone(),), {}), layer_rule(()))
    given = traced.inputs[0].clone()
    evaluate(traced, model)
    assert torch.equal(traced.inputs[0], given)


def test_entries_are_found_in_the_model_or_among_constants():
    model = Residual(2)
    traced, _ = run(model, torch.ones(1, 2, 4, 4))
    assert getter_of(traced, model)(named(traced, "bn1")) is model.bn1
    language = Language()
    traced, _ = run(language, torch.zeros(2, 7, dtype=torch.int64))
    get = getter_of(traced, language)
    assert get(named(traced, "position")) is language.position


def test_a_graph_that_lost_code_without_gradients_is_refused():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                x = self.first(x)
            return self.second(x)

    with pytest.raises(
        NotTracedError,
        match='gradients of what layer "first" returns are needed in the graph only',
    ):
        run(Frozen(), torch.ones(2, 4), way=trace_chain)
    traced, done = run(Frozen(), torch.ones(2, 4))
    assert not done.values[named(traced, "first")].requires_grad


def test_a_graph_with_other_shapes_than_the_model_is_refused():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ReLU()
            self.times = 0

        def forward(self, x):
            self.times += 1
            return self.inner(torch.cat([x] * self.times))

    with pytest.raises(
        NotTracedError, match=r'"inner" returns \[4, 4\] of .* \[2, 4\]'
    ):
        run(Grows(), torch.ones(2, 4))


def test_a_graph_without_a_call_of_the_model_is_refused():
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ReLU()
            self.is_first = True

        def forward(self, x):
            if self.is_first:
                x = self.inner(x)
            self.is_first = False
            return x * 2

    with pytest.raises(NotTracedError, match='1 calls of layer "inner" are not in'):
        run(Once(), torch.ones(2, 4))
