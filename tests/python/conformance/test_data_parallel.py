# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""DistributedDataParallel trains like one process that averages the gradients."""

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.testing import run_ranks
from conformance.training import (
    LEARNING_RATE,
    Net,
    batch,
    differences,
    loss_of,
    reference,
    sgd,
)

SIZE, STEPS = 3, 4

VARIANTS = {
    "plain": {},
    "many buckets": {"bucket_cap_mb": 0.001},
    "gradients in buckets": {"gradient_as_bucket_view": True},
    "static graph": {"static_graph": True},
    "no buffers": {"broadcast_buffers": False},
}


def some_use_seldom(rank, step):
    return rank == step % SIZE


def train(rank, size, options, hook=None, tolerance=1e-5):
    model = Net()
    model.seldom.requires_grad_(False)
    model = DistributedDataParallel(model, **options)
    if hook == "power":
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(batch(rank, step))).backward()
        optimizer.step()
    wanted = reference(size, STEPS)
    return differences(
        dict(model.module.named_parameters()), wanted, tolerance=tolerance
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_averaged(variant):
    assert run_ranks(SIZE, train, VARIANTS[variant]) == [[]] * SIZE


@pytest.mark.parametrize("debug", ["INFO", "DETAIL"])
def test_debugging_changes_nothing(debug):
    env = {"TORCH_DISTRIBUTED_DEBUG": debug}
    assert run_ranks(SIZE, train, {}, env=env) == [[]] * SIZE


@pytest.mark.parametrize(
    ("hook", "tolerance"),
    [
        (default_hooks.allreduce_hook, 1e-5),
        (default_hooks.fp16_compress_hook, 1e-3),
        (default_hooks.bf16_compress_hook, 1e-2),
    ],
)
def test_hooks_of_torch_work(hook, tolerance):
    assert run_ranks(SIZE, train, {}, hook, tolerance) == [[]] * SIZE


def test_a_hook_of_torch_that_waits_inside_its_callbacks_works():
    done = run_ranks(SIZE, train, {}, "power", 5e-2, group_timeout=5, deadline=10)
    assert done == [[]] * SIZE


def train_with_unused(rank, size):
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        output = model(batch(rank, step), is_seldom=some_use_seldom(rank, step))
        loss_of(output).backward()
        optimizer.step()
    wanted = reference(size, STEPS, is_seldom=some_use_seldom)
    return differences(dict(model.module.named_parameters()), wanted)


def test_parameters_that_a_rank_does_not_use_count_as_zero():
    assert run_ranks(SIZE, train_with_unused) == [[]] * SIZE


def train_without_sync(rank, size):
    model = Net()
    model.seldom.requires_grad_(False)
    model = DistributedDataParallel(model)
    with model.no_sync():
        loss_of(model(batch(rank, 0))).backward()
    local = model.module.first.weight.grad.clone()
    loss_of(model(batch(rank, 1))).backward()
    alone = Net()
    alone.seldom.requires_grad_(False)
    loss_of(alone(batch(rank, 0))).backward()
    is_local = torch.allclose(alone.first.weight.grad, local)
    alone.zero_grad()
    for other in range(size):
        for step in range(2):
            (loss_of(alone(batch(other, step))) / size).backward()
    wanted = {name: p.grad for name, p in alone.named_parameters() if p.requires_grad}
    found = {name: p.grad for name, p in model.module.named_parameters()}
    return is_local, differences(found, wanted)


def test_no_sync_accumulates_and_the_next_backward_averages_the_sum():
    assert run_ranks(SIZE, train_without_sync) == [(True, [])] * SIZE


def train_with_uneven_inputs(rank, size):
    model = Net()
    model.seldom.requires_grad_(False)
    model = DistributedDataParallel(model)
    optimizer = sgd(model)
    num_steps = 2 + rank
    with model.join():
        for step in range(num_steps):
            optimizer.zero_grad()
            loss_of(model(batch(rank, step))).backward()
            optimizer.step()
    wanted = reference(
        size,
        2 + size - 1,
        ranks_of=lambda step: [r for r in range(size) if step < 2 + r],
    )
    return differences(dict(model.module.named_parameters()), wanted)


def test_join_lets_ranks_run_out_of_inputs():
    assert run_ranks(SIZE, train_with_uneven_inputs) == [[]] * SIZE


def shard_optimizer(rank, size):
    model = Net()
    model.seldom.requires_grad_(False)
    model = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(
        [p for p in model.parameters() if p.requires_grad],
        optimizer_class=torch.optim.SGD,
        lr=LEARNING_RATE,
    )
    with Join([model, optimizer]):
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model(batch(rank, step))).backward()
            optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    has_state = rank != 0 or len(optimizer.state_dict()["param_groups"]) == 1
    wanted = reference(size, STEPS)
    return has_state, differences(dict(model.module.named_parameters()), wanted)


def test_a_sharded_optimizer_keeps_all_ranks_alike():
    assert run_ranks(SIZE, shard_optimizer) == [(True, [])] * SIZE


def synchronize_batch_norm(rank, size):
    """SyncBatchNorm has no CPU kernels, so its statistics are computed here, with
    autograd.
    """
    from torch.distributed.nn.functional import all_reduce

    def normalize(x, mean, square):
        return (x - mean) / (square - mean * mean + 1e-5).sqrt()

    parts = [batch(r, 0) for r in range(size)]
    mine = parts[rank].clone().requires_grad_()
    sums = all_reduce(torch.stack([mine.mean(0), (mine * mine).mean(0)])) / size
    (normalize(mine, *sums) ** 3).sum().backward()
    everything = torch.cat(parts).requires_grad_()
    both = everything.mean(0), (everything * everything).mean(0)
    (normalize(everything, *both) ** 3).sum().backward()
    wanted = everything.grad.chunk(size)[rank]
    return torch.allclose(mine.grad, wanted, rtol=1e-4, atol=1e-4)


def test_collectives_with_gradients():
    assert run_ranks(SIZE, synchronize_batch_norm) == [True] * SIZE


def differ_in_shape(rank, size):
    with pytest.raises(RuntimeError, match="appears not to match" if rank else ""):
        DistributedDataParallel(torch.nn.Linear(4 + rank, 2))


def test_models_of_different_shapes_are_refused():
    run_ranks(2, differ_in_shape, may_die=[0])  # the other ranks compare with rank 0
