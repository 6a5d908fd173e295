# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Means of integers, and sums of inputs that are multiplied first (PREMUL_SUM)."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import aikido_torch
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks

SIZE = 3
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COUNT = 9  # a multiple of SIZE


def reduced(tensor, op, way, rank, size):
    """The result of `tensor` on this rank, by one of the reducing calls; None: no
    result.
    """
    tensor = tensor.clone()
    part = torch.empty_like(tensor[: COUNT // size])
    parts = list(tensor.chunk(size))
    if way == "all_reduce":
        dist.all_reduce(tensor, op)
    elif way == "all_reduce_coalesced":
        dist.all_reduce_coalesced([tensor], op)
    elif way == "reduce":
        dist.reduce(tensor, 1, op)
        return tensor if rank == 1 else None
    elif way == "sparse":
        sparse = tensor.to_sparse()
        dist.all_reduce(sparse, op)
        return sparse.to_dense()
    elif way == "reduce_scatter":
        dist.reduce_scatter(part, parts, op)
    elif way == "reduce_scatter_in_place":
        dist.reduce_scatter_tensor(tensor[: COUNT // size], tensor, op)
        return tensor[: COUNT // size]
    elif way == "aikido reduce_scatter":
        aikido_torch.reduce_scatter(part, parts, op=op)
    else:
        dist.reduce_scatter_tensor(part, tensor, op)
    return part if "scatter" in way else tensor


WAYS = (
    "all_reduce",
    "all_reduce_coalesced",
    "reduce",
    "sparse",
    "reduce_scatter",
    "reduce_scatter_in_place",
    "reduce_scatter_tensor",
    "aikido reduce_scatter",
)


def is_as(found, total, rank, way):
    if found is None:
        return True
    wanted = total.chunk(SIZE)[rank] if "scatter" in way else total
    return found.dtype == wanted.dtype and torch.equal(found, wanted)


def integers(rank, dtype):
    values = torch.tensor([-7, 7, -8, 8, -1, 1, 0, 100, -100]) + 3 * rank
    return (values.abs() if dtype == torch.uint8 else values).to(dtype)


def mean_of_integers(rank, size):
    wrong = []
    for dtype, way in itertools.product(INTEGERS, WAYS):
        # Overflow wraps in its own dtype.
        total = sum(integers(r, dtype) for r in range(size))
        mean = torch.div(total, size, rounding_mode="trunc")
        found = reduced(integers(rank, dtype), dist.ReduceOp.AVG, way, rank, size)
        if not is_as(found, mean, rank, way):
            wrong.append((dtype, way, found, mean))
    return wrong


def test_the_mean_of_integers_is_the_sum_divided_towards_zero():
    assert run_ranks(SIZE, mean_of_integers) == [[]] * SIZE


def test_bool_has_no_mean(group_of_one):
    with pytest.raises(ConfigError, match="avg, which is not defined for dtype bool"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), dist.ReduceOp.AVG)


def factor_of(rank, dtype, kind):
    """A factor that differs between ranks, and is exact in each dtype."""
    value = 0.5 + rank
    if kind == "number":
        return value
    return torch.tensor([value], dtype=torch.float64 if kind == "other" else dtype)


def premultiplied(rank, size):
    wrong = []
    for dtype, way, kind in itertools.product(
        FLOATS, WAYS, ("number", "tensor", "other")
    ):
        if way == "sparse" and dtype == torch.float16:
            continue  # torch itself cannot add such tensors
        given = [torch.arange(COUNT, dtype=dtype) - r for r in range(size)]
        total = sum(t * (0.5 + r) for r, t in enumerate(given))
        op = dist._make_nccl_premul_sum(factor_of(rank, dtype, kind))
        found = reduced(given[rank], op, way, rank, size)
        if not is_as(found, total, rank, way):
            wrong.append((dtype, way, kind, found, total))
    # As frameworks pass them: a scalar tensor, complex numbers, views.
    op = dist._make_nccl_premul_sum(0.25)
    single, pair, across = (
        torch.tensor(4.0),
        torch.full((2,), 4 + 8j),
        torch.full((4, 2), 4.0).t(),
    )
    for tensor in (single, pair, across):
        dist.all_reduce(tensor, op)
    wrong += [
        t for t in (single, pair, across) if not torch.equal(t.real, t.real * 0 + 3.0)
    ]
    # Without a late rank a policy changes nothing.
    skipped = torch.full((5,), 4.0)
    aikido_torch.all_reduce(skipped, op=op, policy=SkipStraggler())
    wrong += [skipped] if skipped.tolist() != [3.0] * 5 else []
    return wrong


def test_inputs_may_be_multiplied_before_they_are_summed():
    assert run_ranks(SIZE, premultiplied) == [[]] * SIZE


def test_the_input_of_a_rank_that_gets_no_result_stays_as_it_is(group_of_one):
    tensor = torch.ones(4)
    output = torch.empty(4)
    dist.reduce_scatter_tensor(output, tensor, dist._make_nccl_premul_sum(2.0))
    assert tensor.tolist() == [1.0] * 4
    assert output.tolist() == [2.0] * 4


def test_integers_have_no_factor(group_of_one):
    with pytest.raises(ConfigError, match="int32; multiply first, then use SUM"):
        dist.all_reduce(
            torch.ones(3, dtype=torch.int32), dist._make_nccl_premul_sum(2.0)
        )


def divided_by_a_factor(rank, size):
    torch.manual_seed(0)
    found = []
    for factor in (None, 4.0):
        net = nn.Linear(6, 6, bias=False)
        nn.init.ones_(net.weight)
        fully_shard(net)
        if factor is not None:
            net.set_gradient_divide_factor(factor)
        net(torch.ones(2, 6)).sum().backward()
        grad = net.weight.grad
        assert isinstance(grad, DTensor)
        found.append(grad.full_tensor().flatten()[0].item())
    return found


def test_fully_shard_may_divide_gradients_by_another_factor():
    assert run_ranks(2, divided_by_a_factor) == [[2.0, 1.0]] * 2
