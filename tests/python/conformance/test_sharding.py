# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sharded models, device meshes and DTensors give the results of one process."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from aikido_torch.testing import run_ranks
from conformance.training import Net, batch, differences, loss_of, reference, sgd

STEPS = 3


def train(model, optimizer, rank):
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(batch(rank, step))).backward()
        optimizer.step()


def net():
    model = Net()
    model.seldom.requires_grad_(False)
    return model


def shard_fully(rank, size, shape, reshard, sum_dtype=None):
    names = ("replicas", "shards")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    policy = MixedPrecisionPolicy(reduce_dtype=sum_dtype)
    model = net()
    options = {"mesh": mesh, "reshard_after_forward": reshard, "mp_policy": policy}
    for layer in (model.first, model.middle):
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizer = sgd(model)
    train(model, optimizer, rank)
    tolerance = 1e-5 if sum_dtype is None else 1e-2
    wanted = reference(size, STEPS)
    return differences(dict(model.named_parameters()), wanted, tolerance=tolerance)


@pytest.mark.parametrize(
    ("shape", "reshard", "dtype"),
    [
        ((3,), True, None),
        ((2,), False, None),
        ((2, 2), True, None),
        ((2,), True, torch.bfloat16),
    ],
    ids=["three ranks", "gathered once", "two replicas of two shards", "bf16 sums"],
)
def test_a_fully_sharded_model_trains_as_one_process(shape, reshard, dtype):
    size = torch.Size(shape).numel()
    assert run_ranks(size, shard_fully, shape, reshard, dtype) == [[]] * size


def shard_the_old_way(rank, size, strategy):
    model = net()
    model.seldom = None
    wrapped = FullyShardedDataParallel(
        model,
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    train(wrapped, sgd(wrapped), rank)
    wanted = reference(size, STEPS)
    wanted = {n: p for n, p in wanted.items() if "seldom" not in n}
    with FullyShardedDataParallel.summon_full_params(wrapped):
        found = {
            name.removeprefix("_fsdp_wrapped_module."): p.clone()
            for name, p in wrapped.named_parameters()
        }
    return differences(found, wanted)


@pytest.mark.parametrize(
    "strategy", [ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP]
)
def test_the_older_fully_sharded_wrapper_trains_as_one_process(strategy):
    assert run_ranks(2, shard_the_old_way, strategy) == [[]] * 2


def use_mesh(rank, size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    seen = {}
    for name in ("outer", "inner"):
        group = mesh.get_group(name)
        tensor = torch.tensor([2.0**rank])
        dist.all_reduce(tensor, group=group)
        seen[name] = tensor.item()
        seen[f"backend of {name}"] = dist.get_backend(group)
    seen["coordinate"] = mesh.get_coordinate()
    flat = mesh["outer", "inner"]._flatten("all")
    tensor = torch.tensor([2.0**rank])
    dist.all_reduce(tensor, group=flat.get_group())
    seen["all"] = tensor.item()
    return seen


def test_a_mesh_of_two_by_two_has_groups_along_both_sides():
    for rank, seen in enumerate(run_ranks(4, use_mesh)):
        row, column = divmod(rank, 2)
        assert seen["coordinate"] in ([row, column], (row, column))
        assert seen["outer"] == 2.0**column + 2.0 ** (column + 2)
        assert seen["inner"] == 2.0 ** (2 * row) + 2.0 ** (2 * row + 1)
        assert seen["all"] == 15
        assert seen["backend of outer"] == seen["backend of inner"] == "aikido"


def redistribute(rank, size, shape, rows):
    mesh = init_device_mesh("cpu", shape)
    whole = torch.arange(rows * 10.0).view(rows, 10)
    placements = [Shard(0), Shard(1), Replicate()]
    wrong = []
    for old, new in itertools.product(
        itertools.product(placements, repeat=len(shape)), repeat=2
    ):
        tensor = distribute_tensor(whole, mesh, old).redistribute(mesh, new)
        if tensor.placements != new or not torch.equal(tensor.full_tensor(), whole):
            wrong.append(f"{old} to {new}")
        wanted = distribute_tensor(whole, mesh, new).to_local()
        if not torch.equal(tensor.to_local(), wanted):
            wrong.append(f"{old} to {new}: own part")
    for op, wanted in (("sum", whole * size), ("max", whole + size - 1)):
        local = whole if op == "sum" else whole + rank
        partial = DTensor.from_local(local, mesh, [Partial(op)] * len(shape))
        for new in itertools.product(placements, repeat=len(shape)):
            tensor = partial.redistribute(mesh, new)
            if not torch.equal(tensor.full_tensor(), wanted):
                wrong.append(f"partial {op} to {new}")
    return wrong


@pytest.mark.parametrize(
    ("shape", "rows"), [((3,), 6), ((3,), 7), ((3,), 2), ((2, 2), 7)]
)
def test_a_tensor_is_the_same_however_it_is_spread(shape, rows):
    size = torch.Size(shape).numel()
    assert run_ranks(size, redistribute, shape, rows) == [[]] * size


def multiply(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(3)
    left, right = torch.randn(6, 9), torch.randn(9, 12)
    placements = [Shard(0), Shard(1), Replicate()]
    wrong = []
    for a, b in itertools.product(placements, repeat=2):
        x = distribute_tensor(left, mesh, [a]).requires_grad_()
        y = distribute_tensor(right, mesh, [b]).requires_grad_()
        product = x @ y
        product.sum().backward()
        ones = torch.ones(6, 12)
        for name, found, wanted in (
            ("product", product, left @ right),
            ("left gradient", x.grad, ones @ right.T),
            ("right gradient", y.grad, left.T @ ones),
        ):
            if not torch.allclose(found.full_tensor(), wanted, atol=1e-4):
                wrong.append(f"{a} times {b}: {name}")
    return wrong


def test_products_of_spread_matrices_and_their_gradients():
    assert run_ranks(3, multiply) == [[]] * 3


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def split_layers(rank, size, is_sequence):
    mesh = init_device_mesh("cpu", (size,))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if is_sequence:
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
    model = parallelize_module(Block(), mesh, plan)
    alone = Block()
    torch.manual_seed(11)
    x = torch.randn(2, 4, 8)
    part = x.chunk(size, dim=1)[rank] if is_sequence else x
    output, wanted = model(part), alone(x)
    wanted.square().sum().backward()
    output.square().sum().backward()
    mine = wanted.chunk(size, dim=1)[rank] if is_sequence else wanted
    is_same = torch.allclose(output, mine, atol=1e-5)
    return is_same, differences(
        {n: p.grad for n, p in model.named_parameters()},
        {n: p.grad for n, p in alone.named_parameters()},
    )


@pytest.mark.parametrize("is_sequence", [False, True])
def test_layers_split_among_ranks_compute_the_same(is_sequence):
    assert run_ranks(2, split_layers, is_sequence) == [(True, [])] * 2
