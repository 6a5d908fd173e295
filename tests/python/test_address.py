# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import socket
from datetime import timedelta

import pytest
import torch.distributed as dist

from aikido_torch import _C, Options, _address
from aikido_torch.errors import ConfigError, TimedOutError

OUTWARD = "10.0.0.5"


@pytest.mark.parametrize(
    ("sources", "outward", "wanted"),
    [
        # The store is on this machine under a loopback name, or on another machine.
        ([("127.0.0.1", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("localhost", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("LocalHost.", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("localhost", "::1")], OUTWARD, "::1"),
        ([("::1", "::1")], OUTWARD, "::1"),
        ([("127.0.0.2", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("10.0.0.9", "10.0.0.7")], OUTWARD, "10.0.0.7"),
        ([("rank0.site", "10.0.0.7")], OUTWARD, "10.0.0.7"),
        # The store has the host name of this machine, which resolves to 127.0.1.1.
        ([("rank0", "127.0.0.1")], OUTWARD, OUTWARD),
        ([("rank0", "127.0.1.1")], OUTWARD, OUTWARD),
        ([("rank0", "::1")], OUTWARD, OUTWARD),
        ([("rank0", "127.0.0.1")], None, "127.0.0.1"),  # no network
        # Names that do not resolve are ignored. The first name that resolves decides.
        ([("gone", None), ("10.0.0.9", "10.0.0.7")], OUTWARD, "10.0.0.7"),
        ([("gone", None), ("rank0", "127.0.0.1")], OUTWARD, OUTWARD),
        ([("localhost", "127.0.0.1"), ("rank0", "10.0.0.7")], OUTWARD, "127.0.0.1"),
        ([("gone", None)], OUTWARD, "127.0.0.1"),
        ([], OUTWARD, "127.0.0.1"),
    ],
)
def test_loopback_is_announced_only_if_the_store_was_given_as_loopback(
    sources, outward, wanted
):
    assert _address.choose(sources, lambda: outward) == wanted


def test_the_own_address_is_the_source_address_towards_the_store(monkeypatch):
    for variable in ("MASTER_ADDR", "AIKIDO_SOCKET_IFNAME"):
        monkeypatch.delenv(variable, raising=False)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    nested = dist.PrefixStore("a", dist.PrefixStore("b", store))
    assert _address.own_address(Options(), nested) == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert _address.own_address(Options(), dist.HashStore()) == "127.0.0.1"
    assert _address.own_address(Options(), None) == "127.0.0.1"
    # A name that does not resolve is ignored.
    monkeypatch.setenv("MASTER_ADDR", "no.such.host.invalid")
    assert _address.own_address(Options(), dist.HashStore())
    assert _address.own_address(Options(socket_ifname="lo"), store) == "127.0.0.1"


def test_a_machine_given_its_own_name_announces_a_network_address(
    monkeypatch,
):
    monkeypatch.delenv("AIKIDO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "rank0")
    monkeypatch.setattr(_address, "_source", {"rank0": "127.0.0.1"}.get)
    names = [name for _, name in socket.if_nameindex()]
    addresses = set()
    for name in names:
        try:
            addresses.add(_C.interface_address(name))
        except ConfigError:
            continue
    outward = {a for a in addresses if not _address.is_loopback(a)} or {"127.0.0.1"}
    assert _address.own_address(Options(), dist.HashStore()) in outward


def test_an_unknown_interface_is_named():
    with pytest.raises(ConfigError, match="nosuch0"):
        _C.interface_address("nosuch0")
    with pytest.raises(ConfigError, match="nosuch0"):
        _address.own_address(Options(socket_ifname="nosuch0"), dist.HashStore())


def meetings(store, *addresses):
    """One Meeting for each given address; the address only documents the test."""
    limit = timedelta(milliseconds=200)
    size = len(addresses)
    return [_address.Meeting(store, r, size, limit) for r in range(size)]


class NamedStore(dist.Store):
    """A store in one process that reports the name of a machine as its host."""

    host, port = "node0", 29500

    def __init__(self):
        super().__init__()
        self._values = {}

    def set(self, key, value):
        self._values[key] = value

    def get(self, key):
        return self._values[key].encode()

    def wait(self, keys, timeout):
        if missing := [key for key in keys if key not in self._values]:
            raise RuntimeError(f"wait timeout after {timeout} for {missing}")


@pytest.fixture
def reached(monkeypatch):
    """Sets the address at which the next rank reaches the store; None: loopback."""
    monkeypatch.delenv("AIKIDO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "node0")
    monkeypatch.setattr(_address, "_source", {"node0": "127.0.0.1"}.get)
    monkeypatch.setattr(_address, "_outward_address", lambda: "172.20.0.2")
    monkeypatch.setattr(_address, "_is_here", {"10.9.0.2"}.__contains__)

    def say(address):
        monkeypatch.setattr(_address, "_reached_address", lambda host, port: address)

    return say


def test_a_rank_beside_the_store_learns_its_address_from_another_rank(reached):
    store = NamedStore()
    first, neighbour, other = meetings(store, None, None, "10.9.0.2")
    reached("10.9.0.2")
    assert not _address.tell(other)
    reached(None)
    assert _address.tell(neighbour)
    assert _address.own_address(Options(), store, first) == "10.9.0.2"
    assert _address.own_address(Options(), store, neighbour) == "10.9.0.2"
    # A rank with a given interface asks no other rank.
    alone = meetings(NamedStore(), None, None)[0]
    assert (
        _address.own_address(Options(socket_ifname="lo"), alone.store, alone)
        == "127.0.0.1"
    )


def test_an_address_that_no_interface_has_is_ignored(reached):
    store = NamedStore()
    first, other = meetings(store, None, "192.0.2.7")
    reached("192.0.2.7")  # the router translates addresses
    _address.tell(other)
    reached(None)
    assert _address.own_address(Options(), store, first) == "172.20.0.2"


def test_ranks_of_one_machine_use_its_outward_address(reached):
    store = NamedStore()
    first, other = meetings(store, None, None)
    reached(None)
    _address.tell(other)
    assert _address.own_address(Options(), store, first) == "172.20.0.2"


def test_a_rank_that_announces_no_address_is_named(reached):
    store = NamedStore()
    first, _ = meetings(store, None, None)
    reached(None)
    with pytest.raises(
        TimedOutError, match=r"waiting for rank 1, which.*IFNAME"
    ) as why:
        _address.own_address(Options(), store, first)
    assert why.value.rank == 1


def test_a_store_with_a_numeric_host_needs_no_announcement(reached, monkeypatch):
    monkeypatch.setattr(_address, "_reached_address", None)  # must not be called
    for host in ("10.9.0.2", "fd00:9::2", "127.0.0.1", "localhost"):
        store = NamedStore()
        store.host = host
        assert not _address.tell(meetings(store, None, None)[0])


def test_a_connection_to_the_store_shows_its_own_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        _address._reached_address.cache_clear()
        assert _address._reached_address("127.0.0.1", port) is None  # loopback
    assert _address._is_here("127.0.0.1")
    assert not _address._is_here("192.0.2.1")
