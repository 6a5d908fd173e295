# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch

from aikido_torch.ddp._buckets import Bucket, Slice, gradients_from


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
