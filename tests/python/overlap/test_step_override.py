# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import types

import pytest
import torch

from aikido_torch.overlap._step_override import StepOverride


@pytest.fixture
def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)


def test_a_call_with_and_without_closure_reaches_the_new_function(optimizer):
    override, calls = StepOverride(optimizer), []
    optimizer.step()
    override.install(calls.append)
    optimizer.step()
    optimizer.step(len)
    assert calls == [None, len]
    override.remove()
    optimizer.step()
    assert calls == [None, len]
    assert "step" not in vars(optimizer)


def test_a_step_that_the_user_had_set_is_set_again(optimizer):
    def own(_, closure=None):
        return "own"

    optimizer.step = types.MethodType(own, optimizer)
    override = StepOverride(optimizer)
    override.install(lambda closure: "new")
    assert optimizer.step() == "new"
    override.remove()
    assert optimizer.step() == "own"


def test_a_wrapper_around_the_new_function_calls_the_earlier_one_after_the_end(
    optimizer,
):
    override = StepOverride(optimizer)
    override.install(lambda closure: "new")
    wrapped = optimizer.step
    optimizer.step = lambda: wrapped()
    wrapper = optimizer.step
    assert optimizer.step() == "new"
    override.remove()
    assert optimizer.step is wrapper
    assert optimizer.step() is None


def test_the_mark_of_a_scheduler_stays(optimizer):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert scheduler is not None
    StepOverride(optimizer).install(lambda closure: None)
    assert optimizer.step._wrapped_by_lr_sched
