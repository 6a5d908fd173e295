# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Reconfiguration of one process; multiproc/test_reconfigure.py has several."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import _backend, _members
from aikido_torch.errors import ConfigError, TimedOutError, UnsupportedError


def total(group):
    tensor = torch.full((3,), 2.0)
    dist.all_reduce(tensor, group=group)
    return tensor.tolist()


def test_the_handle_of_a_member_is_a_text_that_does_not_change(group_of_one):
    handle = aikido_torch.reconfigure_handle(group_of_one)
    assert handle.isascii()
    assert handle.isprintable()
    assert len(handle.split()) == 1
    group = aikido_torch.reconfigure(1, [handle], group=group_of_one)
    assert aikido_torch.reconfigure_handle(group) == handle
    assert aikido_torch.reconfigure_handle() == handle


def test_a_group_of_one_continues_alone(group_of_one):
    assert total(group_of_one) == [2.0] * 3
    epoch = _backend.backend_of(None).epoch
    handle = aikido_torch.reconfigure_handle()
    for uuid, handles in enumerate(([handle], {handle})):
        group = aikido_torch.reconfigure(uuid, handles)
        assert (group.rank(), group.size()) == (0, 1)
        assert group == dist.group.WORLD
        assert total(group) == [2.0] * 3
        assert _backend.backend_of(None).epoch == epoch + 1 + uuid


@pytest.mark.parametrize(
    ("handles_of", "text"),
    [
        (lambda own: [], "this member's handle is not among the 0 handles"),
        (lambda own: ["garbage"], 'handle 1 of 1: "garbage" is no handle'),
        (lambda own: [own, own], "handles 1 and 2 of 2 are of the same member"),
        (lambda own: [own[:-1] + "x"], "its secret is none"),
        (lambda own: own, "handles is a str; pass a list or set"),
        (lambda own: (own,), "handles is a tuple; pass a list or set"),
        (lambda own: None, "handles is a NoneType; pass a list or set"),
        (lambda own: [own, 5], "5 among the handles is a int; pass the texts that"),
        (lambda own: ["x"], r"pass what aikido_torch\.reconfigure_handle\(\) gave on"),
        (lambda own: [], r"does not call aikido_torch\.reconfigure\(\.\.\.\), and"),
    ],
)
def test_invalid_handles_are_refused_at_once(group_of_one, handles_of, text):
    own = aikido_torch.reconfigure_handle()
    with pytest.raises(ConfigError, match=text):
        aikido_torch.reconfigure(1, handles_of(own))
    # The refused call has used neither the uuid nor the group.
    assert total(group_of_one) == [2.0] * 3
    aikido_torch.reconfigure(1, [own])


@pytest.mark.parametrize("uuid", ["a", 1.5, None, 2**63, -(2**63) - 1])
def test_a_uuid_must_be_an_integer_of_64_bits(group_of_one, uuid):
    own = aikido_torch.reconfigure_handle()
    with pytest.raises(ConfigError) as caught:
        aikido_torch.reconfigure(uuid, [own])
    assert str(caught.value).startswith(
        f"reconfigure: uuid is {uuid!r}; pass a whole number of 64 bits"
    )
    aikido_torch.reconfigure(2**63 - 1, frozenset([own]))


def test_a_timeout_must_be_a_timedelta(group_of_one):
    own = aikido_torch.reconfigure_handle()
    with pytest.raises(ConfigError, match=r"timeout is 5; pass a datetime\.timedelta"):
        aikido_torch.reconfigure(1, [own], timeout=5)


def test_a_uuid_can_be_used_once(group_of_one):
    own = aikido_torch.reconfigure_handle()
    aikido_torch.reconfigure(-7, [own])
    with pytest.raises(ConfigError, match=r"uuid -7 on rank 0: .* already used"):
        aikido_torch.reconfigure(-7, [own])
    assert total(None) == [2.0] * 3


def test_a_group_whose_members_do_not_come_is_unchanged(group_of_one):
    own = aikido_torch.reconfigure_handle()
    # The handle of another member at the same address.
    absent = "/".join([*own.split("/")[:3], "0" * 16, "0" * 32])
    with pytest.raises(TimedOutError, match="while waiting for rank 1") as caught:
        aikido_torch.reconfigure(1, [own, absent], timeout=timedelta(milliseconds=50))
    assert caught.value.rank == 1
    assert total(group_of_one) == [2.0] * 3
    # The time-out is long enough for the answer that the member is unknown there.
    with pytest.raises(TimedOutError, match="with the same uuid and handles"):
        aikido_torch.reconfigure(2, [absent, own], timeout=timedelta(milliseconds=500))


@pytest.mark.skipif(not _members._IN_PLACE, reason="needs torch 2.14")
def test_a_group_without_members_refuses_calls_and_can_be_destroyed():
    dist.init_process_group(
        "aikido", store=dist.HashStore(), rank=0, world_size=2, enable_reconfigure=True
    )
    backend = _backend.backend_of(None)
    tensor = torch.ones(2)
    for call in (
        lambda: dist.all_reduce(tensor),
        lambda: dist.send(tensor, 1),
        lambda: dist.recv(tensor),
        dist.barrier,
        dist.monitored_barrier,
        lambda: aikido_torch.all_reduce(tensor),
        lambda: backend.counters,
    ):
        with pytest.raises(ConfigError, match="has no members yet") as caught:
            call()
        assert "call aikido_torch.reconfigure(uuid, handles) first" in str(caught.value)
    backend._start_coalescing()
    with pytest.raises(ConfigError, match="has no members yet"):
        backend.allreduce([tensor])
    assert backend._end_coalescing().wait()
    backend.abort()
    assert backend.get_error().name == "SUCCESS"
    dist.destroy_process_group()


def test_an_old_torch_gets_a_new_group_object(group_of_one, monkeypatch):
    monkeypatch.setattr(_members, "_IN_PLACE", False)
    name = group_of_one.group_name
    handle = aikido_torch.reconfigure_handle()
    group = aikido_torch.reconfigure(1, [handle])
    assert group != group_of_one
    assert group == dist.group.WORLD
    assert group.group_name == name
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    assert dist.get_process_group_ranks(group) == [0]
    assert total(None) == total(group) == [2.0] * 3
    other = dist.new_group()
    with pytest.raises(UnsupportedError, match="only the default group"):
        aikido_torch.reconfigure(2, [handle], group=other)
    dist.destroy_process_group(other)
