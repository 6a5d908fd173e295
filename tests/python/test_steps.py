# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch._steps import StepHook, in_pieces, tell_passed, telling


@pytest.fixture
def told():
    """An optimizer, and what its hooks were told."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    calls = []
    optimizer.register_step_pre_hook(StepHook(lambda: calls.append("before")))
    optimizer.register_step_post_hook(StepHook(lambda: calls.append("after")))
    return optimizer, calls


def test_hooks_are_told_of_whole_steps(told):
    optimizer, calls = told
    optimizer.step()
    assert calls == ["before", "after"]


def test_hooks_are_told_once_of_a_step_in_pieces(told):
    optimizer, calls = told
    with telling(optimizer):
        pass
    for _ in range(3):
        with in_pieces(optimizer):
            optimizer.step()
    assert calls == ["before", "after"]
    optimizer.step()
    assert calls == ["before", "after"] * 2


def test_hooks_of_others_are_not_told_of_what_was_not_done(told):
    optimizer, calls = told
    optimizer.register_step_post_hook(lambda *_: calls.append("theirs"))
    with telling(optimizer):
        pass
    assert calls == ["before", "after"]


def test_a_step_that_others_did_ends_only(told):
    optimizer, calls = told
    tell_passed(optimizer)
    assert calls == ["after"]
