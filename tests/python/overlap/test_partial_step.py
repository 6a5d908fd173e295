# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aikido_torch._steps import StepHook
from aikido_torch.errors import ConfigError
from aikido_torch.overlap._partial_step import (
    check_in_parts,
    needs_whole_step,
    step_part,
    values_of,
)

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "SGD foreach": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "Adam foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
}


def parameters_of(sizes=((4, 3), (3,), (3, 2))):
    return [torch.nn.Parameter(torch.randn(size)) for size in sizes]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_in_parts_are_steps(name):
    whole = parameters_of()
    parts = copy.deepcopy(whole)
    of_whole, of_parts = OPTIMIZERS[name](whole), OPTIMIZERS[name](parts)
    check_in_parts(of_parts)
    for _ in range(4):
        for a, b in zip(whole, parts, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        of_whole.step()
        values = values_of(of_parts)
        for some in ([parts[2]], parts[:2]):
            step_part(of_parts, of_parts.step, some, values)
    for a, b in zip(whole, parts, strict=True):
        assert torch.equal(a, b)
    assert of_parts.param_groups[0]["params"] == parts


def test_trying_an_optimizer_out_leaves_it_alone():
    parameters = parameters_of()
    optimizer = torch.optim.Adam(parameters)
    before = copy.deepcopy(parameters)
    check_in_parts(optimizer)
    assert not optimizer.state
    assert all(torch.equal(a, b) for a, b in zip(parameters, before, strict=True))
    assert all(p.grad is None for p in parameters)


def test_a_part_is_stepped_with_the_values_of_then():
    (p,) = parameters = parameters_of([(1,)])
    for lr in (0.5, torch.tensor(0.5)):
        optimizer = torch.optim.SGD(parameters, lr=lr)
        values = values_of(optimizer)
        group = optimizer.param_groups[0]
        if isinstance(lr, torch.Tensor):
            group["lr"].fill_(0.25)
        else:
            group["lr"] = 0.25
        before = p.item()
        p.grad = torch.ones(1)
        step_part(optimizer, optimizer.step, parameters, values)
        assert before - p.item() == pytest.approx(0.5)
        assert float(group["lr"]) == 0.25


def test_lists_of_parameters_come_back_after_an_error():
    parameters = parameters_of()
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def fail():
        assert len(optimizer.param_groups[0]["params"]) == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step_part(optimizer, fail, parameters[:1], values_of(optimizer))
    assert optimizer.param_groups[0]["params"] == parameters


class ByNorm(torch.optim.SGD):
    """Optimizer that scales all gradients by their common norm."""

    def step(self, closure=None):
        gradients = [p.grad for g in self.param_groups for p in g["params"]]
        torch.nn.utils.clip_grad_norm_(
            [p for g in self.param_groups for p in g["params"]], 1e-3
        )
        assert gradients
        return super().step(closure)


class Counting(torch.optim.SGD):
    """Optimizer that counts its steps in its groups."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
        return super().step(closure)


class CountingAside(torch.optim.SGD):
    """Optimizer that counts its steps in an attribute, and takes small steps at
    first.
    """

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class Picky(torch.optim.SGD):
    def step(self, closure=None):
        raise ValueError("only on Sundays")


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (torch.optim.LBFGS, "LBFGS evaluates the model"),
        (ByNorm, "ByNorm steps a parameter in another way"),
        (Counting, "a step of Counting changes values"),
        (CountingAside, "CountingAside counts its steps in an attribute"),
        (Picky, "only on Sundays"),
    ],
)
def test_an_optimizer_that_cannot_step_in_parts_is_refused(optimizer, words):
    with pytest.raises(ConfigError, match=words):
        check_in_parts(optimizer(parameters_of(), lr=0.1))


def test_trying_an_optimizer_out_calls_no_hook_of_its_steps():
    optimizer = torch.optim.SGD(parameters_of(), lr=0.1)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("behind"))
    check_in_parts(optimizer)
    assert calls == []


def test_hooks_and_scales_want_whole_steps():
    optimizer = torch.optim.Adam(parameters_of(), fused=True)
    assert not needs_whole_step(optimizer)
    hook = optimizer.register_step_post_hook(lambda *_: None)
    assert needs_whole_step(optimizer)
    hook.remove()
    hook = optimizer.register_step_post_hook(StepHook(lambda: None))
    assert not needs_whole_step(optimizer)
    hook.remove()
    hook = register_optimizer_step_pre_hook(lambda *_: None)
    assert needs_whole_step(optimizer)
    hook.remove()
    optimizer.grad_scale = torch.ones(1)
    assert needs_whole_step(optimizer)
    optimizer.grad_scale = None
    assert not needs_whole_step(optimizer)
