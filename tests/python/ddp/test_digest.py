# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.ddp import _digest
from aikido_torch.ddp._digest import Digesting, StateDigest, device_digest


def trained(steps=2, **options):
    torch.manual_seed(0)
    net = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    net.gaps = nn.Parameter(torch.ones(8)[::2])
    optimizer = torch.optim.AdamW(net.parameters(), **{"lr": 0.1} | options)
    for _ in range(steps):
        optimizer.zero_grad()
        (net(torch.ones(1, 2, 4, 4)).sum() + net.gaps.sum()).backward()
        optimizer.step()
    return net, optimizer


def digest_of(net, optimizer):
    names = {id(p): name for name, p in net.named_parameters()}
    return Digesting(7, names, optimizer).result()


def test_equal_states_have_equal_digests():
    one, two = (digest_of(*trained()) for _ in range(2))
    assert one == two
    assert one.total == two.total
    assert one.first_difference(two) is None
    assert {"weight", "optimizer.state[weight].exp_avg"} <= set(one.parts)


def test_a_large_state_is_read_by_another_thread_and_has_the_same_digest(monkeypatch):
    small = digest_of(*trained())
    monkeypatch.setattr(_digest, "_FEW_BYTES", 0)
    net, optimizer = trained()
    digesting = Digesting(7, {id(p): n for n, p in net.named_parameters()}, optimizer)
    assert digesting._thread is not None
    assert digesting.result() == small


def change_weight(net, optimizer):
    with torch.no_grad():
        net.weight[1, 1, 1, 1] += 1e-6


def change_gaps(net, optimizer):
    with torch.no_grad():
        net.gaps[2] *= -1


def change_state(net, optimizer):
    optimizer.state[net.bias]["exp_avg_sq"][0] = 7


def change_rate(net, optimizer):
    optimizer.param_groups[0]["lr"] *= 0.5


def drop_state(net, optimizer):
    del optimizer.state[net.bias]["exp_avg"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (change_weight, "weight"),
        (change_gaps, "gaps"),
        (change_state, "optimizer.state[bias].exp_avg_sq"),
        (drop_state, "optimizer.state[bias].exp_avg"),
        (change_rate, "optimizer.param_groups[0].lr"),
    ],
)
def test_the_first_difference_is_named(change, name):
    healthy, net, optimizer = digest_of(*trained()), *trained()
    change(net, optimizer)
    changed = digest_of(net, optimizer)
    assert changed.total != healthy.total
    assert changed.first_difference(healthy) == name
    assert healthy.first_difference(changed) == name


def test_a_rate_that_is_a_tensor_counts_by_its_value():
    one = digest_of(*trained(lr=torch.tensor(0.1)))
    two = digest_of(*trained(lr=torch.tensor(0.2)))
    assert one == digest_of(*trained(lr=torch.tensor(0.1)))
    assert "optimizer.param_groups[0].lr" in one.parts
    assert one != two


def test_a_sharded_optimizer_counts_by_its_parameters(group_of_one):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.Linear(2, 2)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.1)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    parts = digest_of(net, optimizer).parts
    assert not any(name.startswith("optimizer.state") for name in parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_device_has_a_digest_that_sees_each_change(dtype):
    tensor = torch.arange(1.0, 8.0).to(dtype)
    seen = {int(device_digest(tensor))}
    for i in range(7):
        changed = tensor.clone()
        changed[i] *= -1
        seen.add(int(device_digest(changed)))
        changed[(i + 1) % 7] *= -1  # two changes do not cancel out
        seen.add(int(device_digest(changed)))
    assert len(seen) == 15
    assert int(device_digest(tensor.clone())) in seen
    assert int(device_digest(torch.empty(0, dtype=dtype))) == 0


def test_layouts_without_gaps_are_read_as_they_lie():
    square = torch.arange(16.0).view(4, 4)
    assert int(device_digest(square.t())) == int(device_digest(square))
    assert int(device_digest(square[:, ::2])) == int(
        device_digest(square[:, ::2].contiguous())
    )


def test_a_digest_belongs_to_its_step():
    assert StateDigest(3, {}).first_difference(StateDigest(3, {})) is None
    assert digest_of(*trained()).step == 7
