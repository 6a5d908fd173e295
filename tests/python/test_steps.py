# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch._steps import StepHook, in_pieces, tell_passed, telling


@pytest.fixture
def told():
    """An optimizer, and the calls of its hooks."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    calls = []
    optimizer.register_step_pre_hook(StepHook(lambda: calls.append("before")))
    optimizer.register_step_post_hook(StepHook(lambda: calls.append("after")))
    return optimizer, calls


def test_hooks_are_called_for_whole_steps(told):
    optimizer, calls = told
    optimizer.step()
    assert calls == ["before", "after"]


def test_hooks_are_called_once_for_a_step_in_pieces(told):
    optimizer, calls = told
    with telling(optimizer):
        pass
    for _ in range(3):
        with in_pieces(optimizer):
            optimizer.step()
    assert calls == ["before", "after"]
    optimizer.step()
    assert calls == ["before", "after"] * 2


def test_hooks_of_others_are_not_called_without_a_step(told):
    optimizer, calls = told
    optimizer.register_step_post_hook(lambda *_: calls.append("theirs"))
    with telling(optimizer):
        pass
    assert calls == ["before", "after"]


def test_a_step_done_by_other_ranks_calls_only_the_end_hook(told):
    optimizer, calls = told
    tell_passed(optimizer)
    assert calls == ["after"]
