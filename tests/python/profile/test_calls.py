# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.errors import ConfigError
from aikido_torch.profile._calls import record_calls
from aikido_torch.profile._recorder import Inputs, layer_rule


def recorded(model, *args):
    return record_calls(model, Inputs(args, {}), layer_rule(()))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.never = nn.Parameter(torch.ones(1))
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x) * self.scale


def test_calls_are_in_order_with_their_arguments():
    model = Nested()
    x = torch.randn(2, 4)
    linear, relu = recorded(model, x)
    assert (linear.id, relu.id) == ("inner.0", "inner.1")
    ((given,), kwargs) = linear.arguments
    assert torch.equal(given, x)
    assert not given.requires_grad
    assert kwargs == {}
    # The argument has its value from before the in-place change.
    ((given,), _) = relu.arguments
    assert torch.equal(given, model.inner[0](x))
    assert given.requires_grad
    assert given.is_leaf
    assert relu.activation_bytes == 2 * 4 * 4


def test_only_used_parameters_are_recorded():
    model = Nested()
    linear, relu = recorded(model, torch.randn(2, 4))
    expected = [model.inner[0].weight, model.inner[0].bias, model.scale]
    assert len(linear.parameters) == 3
    assert all(a is b for a, b in zip(linear.parameters, expected, strict=True))
    assert relu.parameters == []


def test_a_parameter_outside_layers_belongs_to_the_first_layer_called_there():
    model = nn.Sequential(nn.Linear(4, 4), Nested())
    first, inner, _ = recorded(model, torch.randn(2, 4))
    assert not any(p is model[1].scale for p in first.parameters)
    assert inner.parameters[-1] is model[1].scale


def test_hooks_are_removed_when_the_model_fails():
    model = Nested()
    with pytest.raises(RuntimeError):
        recorded(model, torch.randn(2, 5))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_model_that_calls_no_layer_is_refused():
    class Idle(Nested):
        def forward(self, x):
            return x

    with pytest.raises(ConfigError, match="calls none of its layers"):
        recorded(Idle(), torch.randn(2, 4))
