# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import torch
from torch import nn

from aikido_torch.recovery import _digest
from aikido_torch.recovery._digest import Digesting, StateDigest, device_digest


def trained(steps=2, **options):
    torch.manual_seed(0)
    net = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    net.gaps = nn.Parameter(torch.ones(8)[::2])
    optimizer = torch.optim.AdamW(net.parameters(), **{"lr": 0.1} | options)
    for _ in range(steps):
        optimizer.zero_grad()
        (
            net(torch.arange(32.0).sin().view(1, 2, 4, 4)).sum() + net.gaps.sum()
        ).backward()
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
        changed[(i + 1) % 7] *= -1  # two changes must not cancel out
        seen.add(int(device_digest(changed)))
    assert len(seen) == 15
    assert int(device_digest(tensor.clone())) in seen
    assert int(device_digest(torch.empty(0, dtype=dtype))) == 0


LAYOUTS = {
    "contiguous": torch.Tensor.contiguous,
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "with gaps": lambda t: torch.stack([t, t], dim=-1)[..., 0],
    "in the middle of a storage": lambda t: torch.cat([t, t])[t.size(0) :],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("where", ["parameter", "optimizer", "all"])
def test_the_layout_of_a_tensor_is_no_difference(layout, where):
    healthy, net, optimizer = digest_of(*trained()), *trained()
    with torch.no_grad():
        if where != "optimizer":
            net.weight.data = LAYOUTS[layout](net.weight.data)
        if where != "parameter":
            for state in optimizer.state.values():
                for key, value in state.items():
                    if value.dim() == 4:
                        state[key] = LAYOUTS[layout](value)
    assert digest_of(net, optimizer) == healthy
    change_weight(net, optimizer)
    assert digest_of(net, optimizer).first_difference(healthy) == "weight"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_device_digests_values_in_the_order_of_their_indices(layout):
    tensor = torch.arange(120.0).view(2, 3, 4, 5)
    other = LAYOUTS[layout](tensor)
    assert int(device_digest(other)) == int(device_digest(tensor))
    other = LAYOUTS[layout](tensor.flip(1))
    assert int(device_digest(other)) != int(device_digest(tensor))


def test_the_order_of_entries_is_no_difference():
    healthy, net, optimizer = digest_of(*trained()), *trained()
    for state in optimizer.state.values():
        entries = list(state.items())
        state.clear()
        state.update(reversed(entries))
    group = optimizer.param_groups[0]
    group["lr"] = group.pop("lr")  # now it is the last entry
    changed = digest_of(net, optimizer)
    assert changed.total == healthy.total
    assert changed.first_difference(healthy) is None


def test_a_digest_belongs_to_its_step():
    assert StateDigest(3, {}).first_difference(StateDigest(3, {})) is None
    assert digest_of(*trained()).step == 7
