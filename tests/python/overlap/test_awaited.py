# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import gc
import weakref

import pytest
import torch
from torch import nn

from aikido_torch.overlap._awaited import can_be_marked, claim, mark, unmark


class Owner:
    """Records the reads, and makes the value final."""

    def __init__(self):
        self.reads = []

    def _on_read(self, parameter, *, of_gradient):
        unmark([parameter])
        self.reads.append("gradient" if of_gradient else "value")


def marked(size=(2, 3)):
    parameter, owner = nn.Parameter(torch.ones(size)), Owner()
    claim([parameter], owner)
    mark([parameter])
    return parameter, owner


READS = {
    "method": lambda p: p.detach(),
    "function": lambda p: torch.add(torch.ones(2, 3), p),
    "operator": lambda p: 1 - p,
    "list": lambda p: torch._foreach_add([p], 1.0),
    "stack": lambda p: torch.stack([torch.ones(2, 3), p]),
    "data": lambda p: p.data,
    "transposed": lambda p: p.T,
    "norm": lambda p: torch.nn.utils.get_total_norm([p]),
    "vector": lambda p: nn.utils.parameters_to_vector([p]),
    "numpy": lambda p: p.detach().numpy(),
    "text": repr,
    "keyword": lambda p: torch.lerp(input=torch.ones(2, 3), end=p, weight=0.5),
    "layer": lambda p: nn.functional.linear(torch.ones(1, 3), p),
}
WRITES = {
    "in place": lambda p: p.mul_(0.5),
    "out": lambda p: torch.add(torch.ones(2, 3), 1, out=p),
    "item": lambda p: p.__setitem__(0, 2.0),
    "list": lambda p: torch._foreach_mul_([p], 0.5),
}


@pytest.mark.parametrize("access", [*READS.values(), *WRITES.values()])
def test_each_read_and_write_of_a_value_is_told_once(access):
    parameter, owner = marked()
    with torch.no_grad():
        access(parameter)
        access(parameter)
    assert owner.reads == ["value"]
    assert type(parameter) is nn.Parameter


def test_the_gradient_is_told_apart_from_the_value():
    for access in (
        lambda p: p.grad,
        lambda p: setattr(p, "grad", None),
        lambda p: nn.utils.clip_grad_norm_([p], 1.0),
        lambda p: torch.optim.SGD([p], lr=0.1).zero_grad(),
    ):
        parameter, owner = marked()
        access(parameter)
        assert owner.reads == ["gradient"]


def test_facts_are_no_reads():
    parameter, owner = marked()
    facts = (
        parameter.shape,
        parameter.dtype,
        parameter.device,
        parameter.requires_grad,
        parameter.is_leaf,
        parameter._version,
        parameter.size(),
        parameter.numel(),
        parameter.is_floating_point(),
    )
    assert facts[0] == (2, 3)
    assert isinstance(parameter, nn.Parameter)
    assert hash(parameter) == id(parameter)
    assert owner.reads == []


def test_a_result_is_a_plain_tensor_that_autograd_knows():
    parameter, _ = marked()
    result = parameter * 2
    assert type(result) is torch.Tensor
    result.sum().backward()
    assert parameter.grad.tolist() == [[2.0] * 3] * 2


def test_an_owner_that_is_gone_is_not_waited_for():
    parameter, owner = marked()
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None
    assert parameter.sum() == 6
    assert type(parameter) is nn.Parameter


def test_classes_with_functions_of_their_own_are_left_alone():
    class Own(nn.Parameter):
        pass

    parameter = Own(torch.ones(2))
    assert not can_be_marked(parameter)
    mark([parameter])
    assert type(parameter) is Own
