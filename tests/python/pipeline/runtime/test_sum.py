# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.pipeline.runtime._stage import Update
from aikido_torch.pipeline.runtime._sum import Sum


def doubled(tensors):
    """A sum with another replica that has equal values."""

    def reduce(tensor):
        tensors.append(tensor)
        tensor *= 2
        return tensor

    return reduce


@pytest.mark.parametrize(
    ("dtypes", "told_in"),
    [
        (["float32"], 1),
        (["float64", "float32", "float64"], 2),
        (["bfloat16", "float32"], 3),  # bfloat16 cannot hold weight and loss
        ([], 1),
    ],
)
def test_gradients_weight_and_loss_are_summed(dtypes, told_in):
    parameters = [
        nn.Parameter(torch.ones(2, i + 1, dtype=getattr(torch, dtype)))
        for i, dtype in enumerate(dtypes)
    ]
    gradients = [torch.full_like(p, i + 1.0) for i, p in enumerate(parameters)]
    tensors = []
    total = Sum(
        Update([*gradients], weight=300.0, loss=1025.5), parameters, doubled(tensors)
    )
    assert total.pending == tensors
    assert len(tensors) == told_in
    update = total.update()
    assert (update.weight, update.loss) == (600.0, 2051.0)
    for got, wanted in zip(update.gradients, gradients, strict=True):
        assert got.dtype == wanted.dtype
        assert torch.equal(got, 2 * wanted)


def test_a_parameter_that_only_another_replica_used_counts_as_zeros():
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    theirs = []
    other = Update([torch.full((2,), 4.0), None], weight=2.0)
    Sum(other, parameters, lambda tensor: theirs.append(tensor.clone()))

    def reduce(tensor):
        tensor += theirs[0]

    mine = Update([None, torch.ones(3)], weight=1.0)
    update = Sum(mine, parameters, reduce).update()
    assert [g.tolist() for g in update.gradients] == [[4, 4], [1, 1, 1]]
    assert update.weight == 3


def test_a_parameter_that_no_replica_used_has_no_gradient():
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    mine = Update([None, torch.ones(3)], weight=1.0)
    unused, used = Sum(mine, parameters, doubled([])).update().gradients
    assert unused is None
    assert used.tolist() == [2, 2, 2]
