# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import warnings

import pytest
import torch
from torch import nn

from aikido_torch.overlap._parameter_usage import LOOK_EVERY, Uses


class Tied(nn.Module):
    """Model that uses the weights of its embedding again, without calling it."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.inner = nn.Linear(3, 3)
        self.attention = nn.MultiheadAttention(3, 1)
        self.path = "long"

    def forward(self, x):
        x = self.embed(x)
        if self.path == "long":
            x = self.inner(x)
        x, _ = self.attention(x, x, x)
        return nn.functional.linear(x, self.embed.weight)


def run(model, uses):
    """For each call: whether its sequence was seen before."""
    seen = []
    hooks = []
    for module in model.modules():
        hooks.append(
            module.register_forward_pre_hook(lambda m, _: seen.append(uses.enter(m)))
        )
        hooks.append(module.register_forward_hook(lambda m, *_: uses.leave(m)))
    uses.begin()
    model(torch.zeros(2, dtype=torch.long))
    uses.end()
    for hook in hooks:
        hook.remove()
    return seen


class Switch(nn.Module):
    """Model with equal calls in each case, that may read another module's weights as
    well.
    """

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.reads_second = False

    def forward(self, x):
        x = self.first(x.float())
        if self.reads_second:
            x = x + self.second.bias
        return self.second(x)


class Own(nn.Parameter):
    """A class of parameters whose reads are not detected."""


def test_each_hundredth_forward_is_watched_and_warns_of_what_had_not_been_seen():
    model = Switch()
    model.second.bias = Own(torch.zeros(2))
    uses = Uses(model, model.parameters(), lambda p: None)
    run(model, uses)
    model.reads_second = True
    for _ in range(LOOK_EVERY - 1):
        assert all(run(model, uses))
    assert uses.by_module[model] == {}
    with pytest.warns(UserWarning, match=r"'the model' reads 'second\.bias'.*Up to 99"):
        run(model, uses)
    assert list(uses.by_module[model].values()) == [model.second.bias]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(LOOK_EVERY):
            run(model, uses)  # known uses are waited for


def test_reads_of_parameters_that_can_be_marked_wait_without_a_warning():
    model = Switch()
    uses = Uses(model, model.parameters(), lambda p: None)
    run(model, uses)
    model.reads_second = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(LOOK_EVERY):
            run(model, uses)
    assert list(uses.by_module[model].values()) == [model.second.bias]


def test_who_is_always_watched_reads_nothing_too_early():
    model = Switch()
    uses = Uses(model, model.parameters(), lambda p: None, always=True)
    run(model, uses)
    model.reads_second = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(model, uses)
    assert list(uses.by_module[model].values()) == [model.second.bias]


def made():
    model, used = Tied(), []
    return model, used, Uses(model, model.parameters(), used.append)


def test_uses_count_for_the_module_whose_forward_is_running():
    model, used, uses = made()
    assert all(run(model, uses))

    def of(module):
        names = {id(p): n for n, p in model.named_parameters()}
        return {names[i] for i in uses.by_module[module]}

    assert of(model) == {"embed.weight"}
    assert of(model.inner) == {"inner.weight", "inner.bias"}
    # The model never calls the layer that holds its last weights.
    assert {"attention.out_proj.weight", "attention.out_proj.bias"} < of(
        model.attention
    )
    order = list(uses.order.values())
    assert order[0] is model.embed.weight
    assert len(order) == len(list(model.parameters()))
    assert len(used) >= len(order)


def test_only_the_first_forward_is_watched():
    model, used, uses = made()
    run(model, uses)
    used.clear()
    assert all(run(model, uses))
    assert used == []


def test_another_way_through_the_model_is_noticed_and_then_watched():
    model, used, uses = made()
    run(model, uses)
    used.clear()
    model.path = "short"
    seen = run(model, uses)
    assert not all(seen)
    assert seen[0]  # up to here everything is as before
    assert used == []
    assert all(run(model, uses))
    assert used != []
    model.path = "long"
    used.clear()
    assert all(run(model, uses))  # both ways are known now
    assert used == []


def test_a_forward_that_fails_leaves_nothing_behind():
    model, _, uses = made()
    run(model, uses)
    uses.begin()
    uses.enter(model)
    uses.enter(model.inner)
    uses.end()
    assert all(run(model, uses))


def test_parameters_that_are_not_trained_do_not_count():
    model = Tied()
    trained = [model.inner.weight]
    uses = Uses(model, trained, lambda p: None)
    run(model, uses)
    assert list(uses.order.values()) == trained
