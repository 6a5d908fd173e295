# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""OverlappedDataParallel on several ranks: equal bits as with DDP."""

import contextlib
import random
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aikido_torch.errors import ConfigError
from aikido_torch.overlap import OverlappedDataParallel
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks
from harness.late_training import LATE, LateSteps
from harness.plain_buckets import plain_buckets

STEPS = 50


class Net(nn.Module):
    """Uneven layers; one is shared, and some batches do not use another one."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(17, 33)
        self.norm = nn.LayerNorm(33)
        self.middle = nn.Linear(33, 33)
        self.large = nn.Linear(33, 301)
        self.last = nn.Linear(301, 3, bias=False)

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x)))
        x = torch.tanh(self.middle(x))
        return self.last(torch.relu(self.large(self.middle(x))))


def make_net():
    torch.manual_seed(3)
    return Net()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "rmsprop foreach": lambda p: torch.optim.RMSprop(p, lr=1e-3, foreach=True),
}


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 17, generator=generator)


def learn(model, optimizer, rank, steps=STEPS):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.7)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch(rank, step)).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def compare(rank, size, names, are_plain):
    with plain_buckets(are_plain):
        return differences(rank, names)


def differences(rank, names):
    differing = []
    for name in names:
        plain, net = make_net(), make_net()
        with torch.no_grad():
            for p in net.parameters():
                p.add_(rank)  # replaced by the values of rank 0
        of_plain, of_net = (OPTIMIZERS[name](m.parameters()) for m in (plain, net))
        wanted = learn(DistributedDataParallel(plain), of_plain, rank)
        model = OverlappedDataParallel(net, of_net)
        found = learn(model, of_net, rank)
        model.synchronize()
        for a, b in zip(plain.parameters(), net.parameters(), strict=True):
            if not torch.equal(a, b):
                differing.append(name)
        if wanted != found:
            differing.append(f"{name}: losses")
        assert model.layout.predicted_s > 0
        model.close()
    return differing


@pytest.mark.beside
@pytest.mark.parametrize(("size", "are_plain"), [(2, False), (3, False), (3, True)])
def test_fifty_steps_have_the_bits_of_ddp(size, are_plain):
    assert run_ranks(size, compare, list(OPTIMIZERS), are_plain) == [[]] * size


class Branches(nn.Module):
    """Branches that are computed in any order; some may be unused."""

    def __init__(self, num):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(6 + i, 5) for i in range(num))
        self.order = list(range(num))

    def forward(self, x):
        outputs = {n: self.branches[n](x[:, : 6 + n]) for n in self.order}
        # The order of the sum does not depend on the order of computation.
        return sum(outputs[n] for n in sorted(outputs))


def learn_branches(rank, size, seed, drops, are_plain):
    """Orders differ between ranks and steps; with `drops` used branches differ."""
    with plain_buckets(are_plain):
        return same_branches(rank, seed, drops)


def same_branches(rank, seed, drops):
    torch.manual_seed(seed)
    plain, net = Branches(7), Branches(7)
    net.load_state_dict(plain.state_dict())
    of_plain, of_net = (
        torch.optim.AdamW(m.parameters(), lr=0.01, weight_decay=0.1)
        for m in (plain, net)
    )
    ddp = DistributedDataParallel(plain, find_unused_parameters=True)
    model = OverlappedDataParallel(net, of_net)
    draw = random.Random(f"{seed} {rank}")
    for step in range(24):
        used = [n for n in range(7) if draw.random() >= drops] or [0]
        plain.order = used
        net.order = draw.sample(used, len(used))
        x = batch(rank, step)
        for m, optimizer in ((ddp, of_plain), (model, of_net)):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            time.sleep(draw.choice([0, 0, 0.005]))
            optimizer.step()
    model.synchronize()
    return [
        torch.equal(a, b)
        for a, b in zip(plain.parameters(), net.parameters(), strict=True)
    ]


@pytest.mark.beside
@pytest.mark.parametrize(
    ("seed", "are_plain"), [(0, False), (1, False), (2, False), (3, True)]
)
@pytest.mark.parametrize("drops", [0.0, 0.4, 0.9])
def test_gradients_can_come_in_any_order_or_not_at_all(drops, seed, are_plain):
    # Same as DistributedDataParallel with find_unused_parameters.
    found = run_ranks(3, learn_branches, seed, drops, are_plain)
    assert found == [[True] * 14] * 3


def differing(rank, size, what):
    net = make_net()
    lr = 0.1 * (1 + rank) if what == "lr" else 0.1
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    with pytest.raises(ConfigError) as caught:
        OverlappedDataParallel(net, optimizer, plan=what == "lr" or rank == 0)
    return str(caught.value)


@pytest.mark.beside
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("lr", "optimizer differs between ranks: optimizer.param_groups[0].lr is 0.1"),
        ("plan", "plan differs between ranks: plan is True on rank 0 but False on"),
    ],
)
def test_ranks_with_different_arguments_are_refused(what, words):
    for text in run_ranks(2, differing, what):
        assert text.startswith(f"OverlappedDataParallel: {words}")


def replan(rank, size):
    """One rank asks for a new plan. Ranks wait for their sums at different times."""
    with plain_buckets(False):
        return plans_and_parameters(rank)


def plans_and_parameters(rank):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    model = OverlappedDataParallel(net, optimizer)
    plans = []
    for step in range(14):
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        if rank == 0 and step == 9:
            net.state_dict()
        optimizer.step()
        if rank == 0 and step == 8:
            model.synchronize()
        if step in (7, 8):  # until the request is known
            model._sums.signal = rank == 1
        if not plans or plans[-1][1] is not model.layout:
            plans.append((step, model.layout))
    model.synchronize()
    return plans, [p.detach().clone() for p in net.parameters()]


@pytest.mark.beside
def test_if_one_rank_asks_for_a_new_plan_all_ranks_make_one():
    (plans, parameters), *others = run_ranks(3, replan)
    # Plans are made at the start and after the first four iterations. The third plan
    # was requested in the backward of step 8, and the request is known after that of
    # step 9.
    assert [step for step, _ in plans] == [0, 3, 9]
    for found, same in others:
        assert found == plans
        assert all(torch.equal(a, b) for a, b in zip(parameters, same, strict=True))


POLICY = SkipStraggler(min_contributors=2, floor_ms=40, ceiling_ms=40)


def learn_late(rank, size):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model = OverlappedDataParallel(net, optimizer, policy=POLICY)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)
    steps = LateSteps(model, rank, after_step=scheduler.step)
    for step in steps:
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()
        scheduler.step()
    model.synchronize()
    skipped = {r for outcome in model.outcomes for r in outcome.skipped}
    dist.barrier()
    return (
        [p.detach().clone() for p in net.parameters()],
        steps.caught_up,
        sorted(skipped),
        scheduler.last_epoch,
    )


def test_a_late_rank_is_skipped_and_catches_up():
    found = run_ranks(3, learn_late)
    for parameters, _, _, epochs in found:
        assert epochs == 20
        for a, b in zip(parameters, found[0][0], strict=True):
            assert torch.equal(a, b)
    assert found[LATE][1] > 0
    assert all(LATE in skipped for _, _, skipped, _ in found)


def learn_then_die(rank, size):
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    model = OverlappedDataParallel(net, optimizer)
    learn(model, optimizer, rank, steps=6)
    if rank == 1:
        return "gone"
    with pytest.raises(dist.DistBackendError) as caught:
        learn(model, optimizer, rank, steps=6)
    with contextlib.suppress(dist.DistBackendError):
        model.close()
    optimizer.zero_grad()
    net.state_dict()
    optimizer.state_dict()
    for forward in (model, net):
        with torch.no_grad():
            assert forward(batch(rank, 0)).isfinite().all()
    learn(net, optimizer, rank, steps=3)
    return str(caught.value)


def test_a_lost_rank_ends_the_training_and_is_named():
    found = run_ranks(2, learn_then_die)
    assert "rank 1" in found[0]
