# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.reassign._gradient import StepGradient

VALUES = torch.arange(12.0, dtype=torch.float64).reshape(6, 2) / 7


def count_bucket(known, bucket):
    known().num_buckets += 1
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class Sums:
    """Model with a hook that counts the sums, and the weights of the steps."""

    def __init__(self, model, **options):
        self.model = DistributedDataParallel(model, **options)
        self.num_buckets = 0
        self.weights = []
        self.model.register_comm_hook(weakref.ref(self), count_bucket)
        self.gradient = StepGradient(self.model, self.weights.append)

    def take(self, row, size=1.0, *, is_last=False):
        weight = self.gradient.before(size, is_last=is_last)
        (loss_of(self.model, VALUES[row]) * weight).backward()


def loss_of(model, values):
    return model(values).square().sum()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def mean_over(rows):
    model = net()
    sum(loss_of(model, VALUES[row]) / len(rows) for row in rows).backward()
    return [p.grad for p in model.parameters()]


def gradients(sums):
    return [p.grad for p in sums.model.parameters()]


def assert_mean_over(sums, rows):
    for own, expected in zip(gradients(sums), mean_over(rows), strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-12, atol=1e-15)


@pytest.fixture(params=[False, True], ids=["copies", "views"])
def sums(request, group_of_one):
    return Sums(net(), gradient_as_bucket_view=request.param)


@pytest.mark.parametrize("num_begun_with", [0, 1, 3, 5])
@pytest.mark.parametrize("knows_last", [True, False])
def test_the_gradient_is_the_mean_over_the_computed_items(
    sums, num_begun_with, knows_last
):
    for step in range(3):
        sums.gradient.begin([1.0] * num_begun_with)
        for row in range(3):
            sums.take(row, is_last=knows_last and row == 2)
            assert sums.num_buckets == step + (knows_last and row == 2)
        sums.gradient.end()
        assert sums.num_buckets == step + 1
        assert sums.weights.pop() == 3.0
        assert_mean_over(sums, range(3))
        assert sums.model.require_backward_grad_sync
        sums.model.zero_grad()


def test_equal_numbers_leave_the_bits_alone(sums):
    sums.gradient.begin([1.0] * 3)
    for row in range(3):
        sums.take(row, is_last=row == 2)
    other = DistributedDataParallel(net())
    with other.no_sync():
        for row in range(2):
            (loss_of(other, VALUES[row]) / 3).backward()
    (loss_of(other, VALUES[2]) / 3).backward()
    for own, expected in zip(gradients(sums), other.parameters(), strict=True):
        assert torch.equal(own, expected.grad)


def test_a_rank_without_items_gives_zeros_with_weight_0(sums):
    for step in range(3):
        sums.gradient.begin([1.0, 1.0])
        sums.gradient.end()
        assert sums.weights == [0.0] * (step + 1)
        assert all(not g.any() for g in gradients(sums))
        sums.model.zero_grad()


def test_an_item_that_is_not_whole_counts_with_its_part(sums):
    sums.gradient.begin([1.0])
    assert sums.gradient.before(0.25, is_last=False) == 0.25
    assert sums.gradient.before(0.5, is_last=True) == 0.5 / 0.75
    assert sums.weights == [0.75]


def test_an_item_without_a_backward_is_taken_out(sums):
    sums.gradient.begin([1.0, 1.0])
    sums.take(0)
    sums.gradient.before(1.0, is_last=True)
    assert sums.gradient.is_whole
    assert sums.gradient.undo()
    sums.gradient.end()
    assert sums.weights[-1] == 1.0
    assert_mean_over(sums, [0])
    sums.model.zero_grad()
    sums.gradient.begin([1.0])
    sums.take(1, is_last=True)
    assert not sums.gradient.undo()
    sums.gradient.end()
    assert_mean_over(sums, [1])


def test_a_backward_that_fails_leaves_no_whole_gradient(sums):
    def fail(_):
        raise ArithmeticError

    sums.gradient.begin([1.0, 1.0])
    sums.take(0)
    hook = next(sums.model.parameters()).register_hook(fail)
    with pytest.raises(ArithmeticError):
        sums.take(1)
    assert not sums.gradient.is_whole
    hook.remove()
    sums.model.zero_grad()
    sums.gradient.begin([1.0])
    assert sums.gradient.is_whole
    sums.take(1, is_last=True)
    assert sums.gradient.is_whole
    sums.gradient.end()
    assert_mean_over(sums, [1])


def test_closed_hooks_see_no_backward(sums):
    sums.gradient.begin([1.0])
    sums.gradient.close()
    sums.take(0)
    assert sums.gradient.undo()


def test_a_model_and_its_gradient_can_be_freed(group_of_one):
    sums = Sums(net())
    sums.gradient.begin([1.0])
    sums.take(0)
    known = weakref.ref(sums.gradient)
    del sums
    gc.collect()
    assert known() is None
