# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.errors import InternalError
from aikido_torch.pipeline.runtime._weights import Weights


def make():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight  # tied
    module[1].bias.requires_grad_(False)
    return module, Weights(module)


def step(weights, version, by=1.0):
    weights.begin_step(version)
    with torch.no_grad():
        for parameter in weights.own:
            parameter += by


def test_a_kept_version_is_not_changed_by_steps():
    module, weights = make()
    begin = [p.detach().clone() for p in weights.own]
    assert len(begin) == 3  # the tied weight counts once
    old = weights.use(0)
    assert module[0].weight is old[0]
    assert module[1].weight is old[0]
    assert [p.requires_grad for p in old] == [True, True, False]
    weights.push(0)
    step(weights, 1)
    new = weights.use(1)
    assert module[0].weight is new[0] is not old[0]
    for leaf, value in zip(old, begin, strict=True):
        assert torch.equal(leaf, value)
    for leaf, value in zip(new, begin, strict=True):
        assert torch.equal(leaf, value + 1)
    assert weights.use(0) is old
    assert weights.num_versions == 2
    weights.pop(0)
    assert weights.num_versions == 1
    with pytest.raises(
        InternalError, match=r"^version 0 of the weights is asked for; "
    ):
        weights.use(0)


@pytest.mark.parametrize("moved", ["parameter", "leaf"])
def test_a_version_has_the_result_of_the_step_even_in_new_memory(moved):
    _, weights = make()
    leaves = weights.use(0)
    if moved == "leaf":  # like a forward of an LSTM on CUDA
        leaves[1].data = leaves[1].data.clone()
    step(weights, 1)
    if moved == "parameter":  # like an optimizer that steps out of place
        weights.own[1].data = weights.own[1].data + 1
    for leaf, own in zip(weights.use(1), weights.own, strict=True):
        assert torch.equal(leaf, own)


def test_nothing_is_copied_if_no_version_is_kept():
    _, weights = make()
    places = [p.data_ptr() for p in weights.own]
    leaves = weights.use(0)
    step(weights, 1)
    assert weights.use(1) is leaves
    assert [p.data_ptr() for p in weights.own] == places
    assert [p.data_ptr() for p in leaves] == places


def test_a_backward_of_a_kept_version_uses_the_weights_of_its_forward():
    module, weights = make()
    x = torch.ones(1, 2, requires_grad=True)
    leaves = weights.use(0)
    output = module(x).sum()
    wanted = torch.autograd.grad(output, [x, leaves[0]], retain_graph=True)
    weights.push(0)
    step(weights, 1, by=5.0)
    weights.use(1)
    got = torch.autograd.grad(output, [x, leaves[0]])
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a, b)


def test_between_schedules_the_module_has_its_own_parameters_at_version_0():
    module, weights = make()
    own = [module[0].weight, module[0].bias, module[1].bias]
    weights.use(0)
    weights.push(0)
    step(weights, 1)
    weights.use(1)
    weights.settle()
    assert [module[0].weight, module[0].bias, module[1].bias] == own
    assert module[1].weight is own[0]
    assert (weights.newest, weights.num_versions) == (0, 1)


def test_recurrent_layers_compute_with_the_requested_version():
    module = nn.GRU(3, 3)
    weights = Weights(module)
    x = torch.ones(4, 3)
    before = module(x)[0]
    weights.use(0)
    weights.push(0)
    step(weights, 1)
    weights.use(1)
    after = module(x)[0]
    weights.use(0)
    assert torch.equal(module(x)[0], before)
    assert not torch.equal(after, before)
