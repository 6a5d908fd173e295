# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""OverlappedDataParallel in training loops of many kinds, beside the same with DDP."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.ddp import OverlappedDataParallel
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(17, 33), nn.Tanh(), nn.Linear(33, 201), nn.Tanh(), nn.Linear(201, 3)
    )


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 17, generator=generator)


def loss_of(model, rank, step):
    return model(batch(rank, step)).square().mean()


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def wait_for_gradients(model):
    """What OverlappedDataParallel wants before gradients are read or changed."""
    if isinstance(model, OverlappedDataParallel):
        model.wait_for_gradients()


def same(plain, model):
    model.synchronize()
    pairs = zip(plain.parameters(), model.module.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def scaled(model, optimizer, rank, to_none):
    """Losses of which some have gradients without bounds on one rank."""
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4)
    scales = []
    for step in range(16):
        optimizer.zero_grad(set_to_none=to_none)
        loss = loss_of(model, rank, step)
        if rank == 1 and step in (0, 5, 6, 11):
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        wait_for_gradients(model)
        if step % 2:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def left_out(model, optimizer, rank, to_none):
    """Steps that are given up, by a look at gradients or by an error in backward."""

    def fail(gradient):
        raise ZeroDivisionError

    def fail_behind(module, inputs, output):
        output.register_hook(fail)

    for step in range(16):
        if step in (4, 8):
            wait_for_gradients(model)
            optimizer.zero_grad(set_to_none=to_none)
        if step == 7:  # with DDP there is no way on from such an error
            if isinstance(model, OverlappedDataParallel):
                fails = model.module[2].register_forward_hook(fail_behind)
                with pytest.raises(ZeroDivisionError):
                    loss_of(model, rank, step).backward()
                fails.remove()
            continue
        loss = loss_of(model, rank, step)
        loss.backward()
        if step == 3:
            continue
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
    return []


def accumulated(model, optimizer, rank, to_none):
    """With a mean that is kept: gradients of the next step are added to it."""
    for step in range(12):
        for part in range(2):
            with model.no_sync():
                loss_of(model, rank, 3 * step + part).backward()
        loss_of(model, rank, 3 * step + 2).backward()
        if step % 3 == 1:
            wait_for_gradients(model)
            continue
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
    return []


LOOPS = {"scaled": scaled, "left out": left_out, "accumulated": accumulated}


def beside_ddp(rank, size, loops):
    found = []
    for name in loops:
        for to_none in (True, False):
            plain, net = make_net(), make_net()
            of_plain, of_net = sgd(plain), sgd(net)
            ddp = DistributedDataParallel(plain)
            model = OverlappedDataParallel(net, of_net)
            wanted = LOOPS[name](ddp, of_plain, rank, to_none)
            got = LOOPS[name](model, of_net, rank, to_none)
            found.append((name, to_none, wanted == got and same(plain, model)))
            model.close()
    return found


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_learns_what_it_learns_with_ddp(name):
    found = run_ranks(2, beside_ddp, [name])
    assert found == [[(name, True, True), (name, False, True)]] * 2


LATE, LATE_S = 2, 0.3
POLICY = SkipStraggler(min_contributors=2, floor_ms=40, ceiling_ms=40)


def learn_late(rank, size, kind):
    net = make_net()
    optimizer = sgd(net)
    model = OverlappedDataParallel(net, optimizer, policy=POLICY)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4)

    def apply():
        if kind == "clipped":
            model.clip_grad_norm_(0.1)
            optimizer.step()
        else:
            model.wait_for_gradients()
            scaler.step(optimizer)
            scaler.update()

    step = caught_up = 0
    while step < 20:
        applied = model.catch_up(apply=apply)
        step, caught_up = step + applied, caught_up + applied
        if step >= 20:
            break
        if rank == LATE and step in (6, 7, 12):
            time.sleep(LATE_S)
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if kind == "scaled":
            loss = loss * float("inf") if rank == 0 and step in (7, 13) else loss
            loss = scaler.scale(loss)
        loss.backward()
        apply()
        step += 1
    model.synchronize()
    dist.barrier()
    return [p.detach().clone() for p in net.parameters()], caught_up, scaler._scale


@pytest.mark.parametrize("kind", ["clipped", "scaled"])
def test_a_late_rank_replays_all_that_the_loop_does(kind):
    found = run_ranks(3, learn_late, kind)
    assert found[LATE][1] > 0
    for parameters, _, scale in found:
        assert scale == found[0][2]
        for a, b in zip(parameters, found[0][0], strict=True):
            assert torch.equal(a, b)
            assert a.isfinite().all()
