# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.ddp._buckets import (
    Bucket,
    ModelBuckets,
    Slice,
    gradients_from,
    lay_out,
    stride_of_gradient,
)


def make():
    parameters = [torch.zeros(2, 3), torch.zeros(4), torch.zeros(1)]
    for i, p in enumerate(parameters):
        p.grad = torch.full_like(p, float(-i))
    offsets = (0, 6, 10)
    slices = tuple(
        Slice(p, p.size(), p.stride(), offset)
        for p, offset in zip(parameters, offsets, strict=True)
    )
    return parameters, Bucket(torch.arange(11.0), slices)


@pytest.mark.parametrize("are_views", [True, False])
def test_gradients_are_those_of_the_bucket_and_then_the_own_again(are_views):
    parameters, bucket = make()
    own = [p.grad for p in parameters]
    unused = {id(parameters[2])}
    with gradients_from([bucket], are_views=are_views, unused=unused):
        assert parameters[0].grad.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert parameters[1].grad.tolist() == [6, 7, 8, 9]
        assert parameters[2].grad is None
        parameters[1].grad.mul_(2)
    assert (bucket.scratch[6] == 12) == are_views
    assert all(p.grad is g for p, g in zip(parameters, own, strict=True))


def test_the_own_gradients_come_back_after_an_error():
    parameters, bucket = make()
    own = [p.grad for p in parameters]
    with (
        pytest.raises(ZeroDivisionError),
        gradients_from([bucket], are_views=True, unused=set()),
    ):
        raise ZeroDivisionError
    assert all(p.grad is g for p, g in zip(parameters, own, strict=True))


def test_parameters_outside_the_buckets_have_no_gradient():
    parameters, bucket = make()
    other, grad = torch.zeros(2), torch.ones(2)
    other.grad = grad
    others = [other, parameters[0]]
    with gradients_from([bucket], are_views=False, unused=set(), others=others):
        assert other.grad is None
        assert parameters[0].grad.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert other.grad is grad


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        ((2, 3), (3, 1), (3, 1)),
        ((2, 3), (1, 2), (1, 2)),
        ((2, 3, 4, 5), (60, 1, 15, 3), (60, 1, 15, 3)),
        ((2, 1, 4), (4, 77, 1), (4, 77, 1)),
        ((2, 3), (6, 2), (3, 1)),  # gaps
        ((2, 3), (0, 1), (3, 1)),  # expanded
        ((4, 4), (1, 1), (4, 1)),  # overlapping
        ((3,), (1,), (1,)),
        ((3,), (2,), (1,)),
        ((), (), ()),
        ((0, 3), (3, 1), (3, 1)),
    ],
)
def test_a_gradient_lies_like_a_dense_parameter_and_else_row_by_row(
    size, stride, expected
):
    assert stride_of_gradient(size, stride) == expected


def layouts():
    """One parameter for each layout that a module may have."""
    last = torch.channels_last, torch.channels_last_3d
    return {
        "row by row": torch.randn(3, 4),
        "column by column": torch.randn(4, 3).t(),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=last[0]),
        "channels last 3d": torch.randn(2, 3, 2, 4, 5).to(memory_format=last[1]),
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "length one": torch.randn(2, 1, 4, 1).to(memory_format=last[0]),
        "with gaps": torch.randn(3, 8)[:, ::2],
        "with gaps and permuted": torch.randn(8, 3)[::2].t(),
        "a number": torch.randn(()),
    }


def strides(tensor):
    """The strides of dimensions with more than one element; others have no effect."""
    both = zip(tensor.size(), tensor.stride(), strict=True)
    return [stride for length, stride in both if length > 1]


class _Layouts(nn.Module):
    def __init__(self):
        super().__init__()
        for name, tensor in layouts().items():
            self.register_parameter(name, nn.Parameter(tensor))

    def forward(self, x):
        return sum((p * p.detach().cos()).sum() for p in self.parameters()) * x


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("are_views", [False, True])
def test_gradients_are_read_back_in_the_layout_in_which_they_were_written(
    group_of_one, are_views, is_static
):
    torch.manual_seed(0)
    net = _Layouts()
    model = DistributedDataParallel(
        net, gradient_as_bucket_view=are_views, static_graph=is_static
    )
    laid_out = {}

    def hook(_, bucket):
        found = lay_out(bucket)
        found.scratch.copy_(bucket.buffer())
        laid_out[bucket.index()] = found
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, hook)
    for _ in range(3):
        model.zero_grad()
        model(torch.tensor(1.0)).backward()
    expected = {name: p.grad for name, p in net.named_parameters()}
    buckets = list(laid_out.values())
    with gradients_from(buckets, are_views=are_views, unused=set()):
        for name, p in net.named_parameters():
            assert torch.equal(p.grad, expected[name]), name
            assert strides(p.grad) == strides(expected[name]), name


class _Bucket:
    """Parameters of two elements each in one bucket of a hook."""

    def __init__(self, index, *parameters):
        self._index, self._parameters = index, parameters
        self._buffer = torch.ones(2 * len(parameters))

    def index(self):
        return self._index

    def buffer(self):
        return self._buffer

    def parameters(self):
        return list(self._parameters)

    def gradients(self):
        return list(self._buffer.split(2))


def test_the_buckets_of_a_model_are_those_of_its_last_strict_step():
    a, b, c = (torch.zeros(2) for _ in range(3))
    buckets = ModelBuckets(are_views=False, final_at=2)
    assert len(buckets) == 0
    assert buckets.parameter_ids == set()
    for index, parameter in enumerate((a, b, c)):
        buckets.lay_out(_Bucket(index, parameter))
    buckets.end_strict_step(2)
    assert len(buckets) == 3
    # The second step has fewer buckets, and one parameter less.
    buckets.lay_out(_Bucket(1, b))
    buckets.lay_out(_Bucket(0, c))
    buckets.end_strict_step(1)
    assert len(buckets) == 2
    assert buckets.parameter_ids == {id(b), id(c)}
    assert buckets.nbytes == 2 * 2 * 4
    first, second = (bucket.slices[0].parameter for bucket in buckets.in_order())
    assert first is c
    assert second is b
    assert buckets[1].slices[0].parameter is b


def test_parameters_without_a_gradient_in_strict_steps_get_none_in_a_replay():
    a, b = torch.zeros(2), torch.zeros(2)
    buckets = ModelBuckets(are_views=False, final_at=2)
    buckets.lay_out(_Bucket(0, a, b))
    buckets.end_strict_step(0)
    a.grad = torch.ones(2)
    buckets.note_unused()
    a.grad = None
    buckets[0].scratch.copy_(torch.arange(4.0))
    with buckets.gradients(others=[]):
        assert a.grad.tolist() == [0, 1]
        assert b.grad is None
    assert a.grad is None
