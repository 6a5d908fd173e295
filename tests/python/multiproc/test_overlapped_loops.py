# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""OverlappedDataParallel in many kinds of training loops, compared with DDP."""

import copy
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.overlap import OverlappedDataParallel
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks
from harness.late_training import LATE, LateSteps
from harness.plain_buckets import plain_buckets


def make_net():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(17, 33), nn.Tanh(), nn.Linear(33, 201), nn.Tanh(), nn.Linear(201, 3)
    )


class Tied(nn.Module):
    """Uses a layer twice, reads its weights elsewhere, and freezes another layer."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen = nn.Linear(17, 9), nn.Linear(9, 9)
        self.last = nn.Linear(17, 9)
        self.last.weight = self.first.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = self.frozen(torch.tanh(self.first(x)))
        return self.last(nn.functional.linear(x, self.first.weight.t()))


def make_tied():
    torch.manual_seed(5)
    return Tied()


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 17, generator=generator)


def loss_of(model, rank, step):
    time.sleep(0.004 * ((step + rank) % 3 == 0))  # a different rank is late each time
    return model(batch(rank, step)).square().mean()


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def wait_for_gradients(model):
    """OverlappedDataParallel requires this call before a use of gradients."""
    if isinstance(model, OverlappedDataParallel):
        model.wait_for_gradients()


def same(plain, model):
    model.synchronize()
    pairs = zip(plain.parameters(), model.module.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def scaled(model, optimizer, rank, to_none):
    """Scaled losses; in some steps the gradients of one rank are not finite."""
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
    """Steps abandoned after a look at gradients or an error in the backward."""

    def fail(gradient):
        raise ZeroDivisionError

    def fail_behind(module, inputs, output):
        output.register_hook(fail)

    for step in range(16):
        if step in (4, 8):
            wait_for_gradients(model)
            optimizer.zero_grad(set_to_none=to_none)
        if step == 7:  # DDP cannot continue after such an error
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
    """Keeps a mean: gradients of the next step are added to it."""
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


def clipped(model, optimizer, rank, to_none):
    norms = []
    for step in range(12):
        optimizer.zero_grad(set_to_none=to_none)
        loss_of(model, rank, step).backward()
        if isinstance(model, OverlappedDataParallel):
            norms.append(model.clip_grad_norm_(0.1).item())
        else:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            norms.append(norm.item())
        optimizer.step()
    return norms


def stored(model, optimizer, rank, to_none):
    """State dicts that some ranks read in any step and that all ranks load."""
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)
    kept, seen = None, []
    for step in range(16):
        optimizer.zero_grad(set_to_none=to_none)
        loss_of(model, rank, step).backward()
        optimizer.step()
        scheduler.step()
        if step % 3 == rank or step == 6:
            state = model.module.state_dict(), optimizer.state_dict()
            seen.append(copy.deepcopy(state[0]))
        if step == 6:
            kept = copy.deepcopy(state)
        if step == 11:
            model.module.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        if step % 4 == rank:
            with torch.no_grad():
                seen.append({"loss": loss_of(model.module, rank, 99)})
    return [{k: v.tolist() for k, v in state.items()} for state in seen]


LOOPS = {
    "scaled": scaled,
    "left out": left_out,
    "accumulated": accumulated,
    "clipped": clipped,
    "stored": stored,
}
NETS = {"chain": make_net, "tied": make_tied}
# One loop fails after a layer that the other network does not have.
CASES = [(loop, "chain") for loop in LOOPS]
CASES += [(loop, "tied") for loop in LOOPS if loop != "left out"]
CASES = [(*case, False) for case in CASES] + [(loop, "chain", True) for loop in LOOPS]


def beside_ddp(rank, size, loop, make, are_plain):
    with plain_buckets(are_plain):
        return both(rank, loop, make)


def both(rank, loop, make):
    found = []
    for to_none in (True, False):
        plain, net = make(), make()
        of_plain, of_net = sgd(plain), sgd(net)
        ddp = DistributedDataParallel(plain)
        model = OverlappedDataParallel(net, of_net)
        wanted = loop(ddp, of_plain, rank, to_none)
        found.append((loop(model, of_net, rank, to_none) == wanted, same(plain, model)))
        model.close()
    return found


@pytest.mark.parametrize(("loop", "net", "are_plain"), CASES)
def test_a_loop_learns_the_same_as_with_ddp(loop, net, are_plain):
    found = run_ranks(3, beside_ddp, LOOPS[loop], NETS[net], are_plain)
    assert found == [[(True, True)] * 2] * 3


class Branches(nn.Module):
    """Branches; each batch uses some of them."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(17, 5) for _ in range(4))
        self.used = [0]

    def forward(self, x):
        outputs = [self.branches[n](x) for n in self.used]
        return {"sum": sum(outputs), "each": outputs}


def make_branches():
    torch.manual_seed(4)
    return Branches()


def with_own_sums(rank, size, walks_before, are_plain):
    """User collectives between backward and step on the same group, as with DDP."""
    with plain_buckets(are_plain):
        return own_sums(rank, walks_before)


def own_sums(rank, walks_before):
    plain, net = make_branches(), make_branches()
    of_plain, of_net = (
        torch.optim.AdamW(m.parameters(), lr=0.01, weight_decay=0.1)
        for m in (plain, net)
    )
    ddp = DistributedDataParallel(plain, find_unused_parameters=True)
    model = OverlappedDataParallel(net, of_net)
    losses = []
    for step in range(16):
        plain.used = net.used = [
            n for n in range(4) if (step + n * (rank + 1)) % 3 != rank
        ] or [3]
        for m, optimizer in ((ddp, of_plain), (model, of_net)):
            optimizer.zero_grad()
            x = batch(rank, step).requires_grad_()
            outputs = m(x)
            if walks_before:
                # A gradient penalty: a walk through the graph that reaches no
                # parameters.
                torch.autograd.grad(outputs["sum"].sum(), x, retain_graph=True)
            loss = outputs["sum"].square().mean()
            loss.backward()
            time.sleep(0.003 * ((step + rank) % 2))
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            optimizer.step()
            losses.append(mean.item())
    return same(plain, model), losses


@pytest.mark.parametrize("are_plain", [False, True])
@pytest.mark.parametrize("walks_before", [False, True])
def test_user_collectives_can_run_between_backward_and_step(walks_before, are_plain):
    found = run_ranks(3, with_own_sums, walks_before, are_plain)
    assert [is_same for is_same, _ in found] == [True] * 3
    assert all(losses == found[0][1] for _, losses in found)
    assert found[0][1][::2] == found[0][1][1::2]


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

    steps = LateSteps(model, rank, apply=apply)
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if kind == "scaled":
            loss = loss * float("inf") if rank == 0 and step in (7, 13) else loss
            loss = scaler.scale(loss)
        loss.backward()
        apply()
    model.synchronize()
    dist.barrier()
    weights = [p.detach().clone() for p in net.parameters()]
    return weights, steps.caught_up, scaler._scale


@pytest.mark.parametrize("kind", ["clipped", "scaled"])
def test_a_late_rank_replays_all_parts_of_a_loop(kind):
    found = run_ranks(3, learn_late, kind)
    assert found[LATE][1] > 0
    for parameters, _, scale in found:
        assert scale == found[0][2]
        for a, b in zip(parameters, found[0][0], strict=True):
            assert torch.equal(a, b)
            assert a.isfinite().all()
