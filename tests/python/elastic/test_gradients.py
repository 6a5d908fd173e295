# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Buckets of gradients whose calls end well, fail, or are never begun."""

import itertools

import pytest
import torch

from aikido_torch.elastic._gradients import Gradients
from aikido_torch.errors import ConfigError, PeerLostError


class Call:
    """A call that doubles the bucket when it ends, as a second equal member does."""

    def __init__(self, flat, fails):
        self._flat, self._fails = flat, fails

    def wait(self):
        if self._fails:
            raise PeerLostError("rank 1 died", rank=1)
        self._flat.mul_(2)


class Calls:
    def __init__(self, fails_at=None, refuses_at=None):
        self.order = []
        self._fails_at, self._refuses_at = fails_at, refuses_at

    def __call__(self, place, flat):
        self.order.append(place)
        if place == self._refuses_at:
            raise PeerLostError("rank 1 died", rank=1)
        return Call(flat, place == self._fails_at)


def model_of(*sizes):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    return torch.nn.Sequential(*layers).double()


def expected(model, data):
    model.zero_grad()
    model(data).mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def run_step(model, gradients, batches, calls):
    gradients.begin(calls)
    for i, data in enumerate(batches):
        share = len(data) / sum(map(len, batches)) / 2
        gradients.begin_batch(share, is_last=i == len(batches) - 1)
        model(data).mean().backward()
    return gradients.finish()


@pytest.mark.parametrize("bucket_bytes", [1, 300, 1 << 20])
def test_the_sum_is_the_mean_over_all_items_of_all_members(bucket_bytes):
    model, data = model_of(4, 8, 2), torch.randn(6, 4, dtype=torch.double)
    wanted = expected(model, data)
    gradients = Gradients(model.parameters(), bucket_bytes)
    calls = Calls()
    failure = run_step(model, gradients, [data[:4], data[4:]], calls)
    assert failure is None
    assert calls.order == list(range(len(gradients.buckets)))
    assert len(calls.order) == {1: 4, 300: 2, 1 << 20: 1}[bucket_bytes]
    for p, value in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(p.grad, value, rtol=1e-12, atol=1e-14)


def test_buckets_are_sent_while_the_last_backward_runs():
    model, data = model_of(4, 8, 8, 2), torch.randn(2, 4, dtype=torch.double)
    gradients, calls, seen = Gradients(model.parameters(), 1), Calls(), []
    model[0].weight.register_hook(lambda g: seen.append(len(calls.order)))
    run_step(model, gradients, [data], calls)
    assert seen[0] >= 3


def test_a_member_without_items_contributes_zeros():
    model = model_of(2, 2)
    gradients = Gradients(model.parameters())
    gradients.begin(Calls())
    assert gradients.finish() is None
    assert all(not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("calls", [Calls(fails_at=1), Calls(refuses_at=0)])
def test_an_error_is_returned_after_the_backward_and_leaves_no_gradient(calls):
    model, data = model_of(4, 8, 2), torch.randn(2, 4, dtype=torch.double)
    gradients = Gradients(model.parameters(), 1)
    failure = run_step(model, gradients, [data], calls)
    assert failure.rank == 1
    assert all(p.grad is None for p in model.parameters())
    # The next attempt is complete.
    assert run_step(model, gradients, [data], Calls()) is None
    assert all(p.grad is not None for p in model.parameters())


def test_a_closed_model_is_as_before():
    model, data = model_of(4, 2), torch.randn(2, 4, dtype=torch.double)
    wanted = expected(model, data)
    gradients = Gradients(model.parameters())
    gradients.begin_batch(0.5, is_last=True)
    gradients.close()
    for own, value in zip(expected(model, data), wanted, strict=True):
        assert torch.equal(own, value)


def test_a_backward_outside_of_a_step_is_refused():
    model = model_of(4, 2)
    gradients = Gradients(model.parameters())
    gradients.begin_batch(1.0, is_last=True)
    with pytest.raises(ConfigError, match="outside of a step"):
        model(torch.ones(1, 4, dtype=torch.double)).sum().backward()


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ConfigError, match="no parameter to train"):
        Gradients(torch.nn.Identity().parameters())
