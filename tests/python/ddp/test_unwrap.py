# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Wrappers with the structure of those of Accelerate, Lightning and Fabric."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import ddp
from aikido_torch.ddp._unwrap import unwrap_model, unwrap_optimizer
from aikido_torch.errors import ConfigError


class AcceleratedOptimizer(torch.optim.Optimizer):
    """Like Accelerate's: an Optimizer that shows the wrapped state, without super()."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)

    def step(self, closure=None):
        raise AssertionError("it steps only when it synchronises gradients")


class LightningOptimizer:
    """A wrapper that is no Optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


class FabricModule(nn.Module):
    def __init__(self, forward_module, original):
        super().__init__()
        self._forward_module = forward_module
        self._original = original

    module = property(lambda self: self._original)


class Lookahead(torch.optim.Optimizer):
    """An optimizer with its own step around another optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        super().__init__(optimizer.param_groups, {})


@pytest.mark.parametrize("wrap", [AcceleratedOptimizer, LightningOptimizer])
def test_the_wrapped_optimizer_is_found(wrap):
    inner = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    assert unwrap_optimizer(wrap(inner)) is inner
    assert unwrap_optimizer(wrap(wrap(inner))) is inner
    assert unwrap_optimizer(inner) is inner


def test_an_optimizer_with_a_step_of_its_own_is_kept():
    outer = Lookahead(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))
    assert unwrap_optimizer(outer) is outer
    assert unwrap_optimizer(None) is None


WRAP = {
    "fabric": lambda model: FabricModule(model, model.module),
    "compiled": torch.compile,
    "compiled in fabric": lambda m: FabricModule(torch.compile(m), m.module),
}


@pytest.mark.parametrize("name", WRAP)
def test_the_wrapped_model_trains_with_its_handle(group_of_one, name):
    model = DistributedDataParallel(nn.Linear(2, 2))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = WRAP[name](model)
    assert unwrap_model(wrapped) is model
    handle = ddp.register(wrapped, optimizer=AcceleratedOptimizer(inner))
    for _ in range(3):
        model(torch.ones(2, 2)).sum().backward()
        inner.step()
    assert handle.steps == 3


def test_a_wrapper_without_ddp_is_refused_by_its_own_name(group_of_one):
    net = nn.Linear(2, 2)
    assert unwrap_model(FabricModule(net, net)).__class__ is FabricModule
    with pytest.raises(ConfigError, match="model is a FabricModule; wrap it in Dist"):
        ddp.register(FabricModule(net, net), optimizer=None)
