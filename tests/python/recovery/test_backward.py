# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.recovery._backward import after_backward


@pytest.mark.parametrize("wrap", [{}, {"static_graph": True}])
def test_gradients_are_in_place_when_it_calls(group_of_one, wrap):
    model = DistributedDataParallel(nn.Linear(2, 2), **wrap)
    seen = []

    def hook(_, bucket):
        doubled = bucket.buffer() * 2
        after_backward(lambda: seen.append(model.module.bias.grad.tolist()))
        future = torch.futures.Future()
        future.set_result(doubled)
        return future

    model.register_comm_hook(None, hook)
    for step in range(3):
        model.zero_grad()
        model(torch.ones(3, 2)).sum().backward()
        assert seen == [[6.0, 6.0]] * (step + 1)
