# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import socket

import pytest
import torch.distributed as dist

from aikido_torch import _C, Options, _address
from aikido_torch.errors import ConfigError

OUTWARD = "10.0.0.5"


@pytest.mark.parametrize(
    ("sources", "outward", "wanted"),
    [
        # The store is on this machine and says so, or on another one.
        ([("127.0.0.1", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("localhost", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("LocalHost.", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("localhost", "::1")], OUTWARD, "::1"),
        ([("::1", "::1")], OUTWARD, "::1"),
        ([("127.0.0.2", "127.0.0.1")], OUTWARD, "127.0.0.1"),
        ([("10.0.0.9", "10.0.0.7")], OUTWARD, "10.0.0.7"),
        ([("rank0.site", "10.0.0.7")], OUTWARD, "10.0.0.7"),
        # It has our own name, which is listed as 127.0.1.1.
        ([("rank0", "127.0.0.1")], OUTWARD, OUTWARD),
        ([("rank0", "127.0.1.1")], OUTWARD, OUTWARD),
        ([("rank0", "::1")], OUTWARD, OUTWARD),
        ([("rank0", "127.0.0.1")], None, "127.0.0.1"),  # there is no network
        # What does not resolve is passed over; the first that does decides.
        ([("gone", None), ("10.0.0.9", "10.0.0.7")], OUTWARD, "10.0.0.7"),
        ([("gone", None), ("rank0", "127.0.0.1")], OUTWARD, OUTWARD),
        ([("localhost", "127.0.0.1"), ("rank0", "10.0.0.7")], OUTWARD, "127.0.0.1"),
        ([("gone", None)], OUTWARD, "127.0.0.1"),
        ([], OUTWARD, "127.0.0.1"),
    ],
)
def test_loopback_is_told_to_others_only_where_a_peer_was_given_so(
    sources, outward, wanted
):
    assert _address.choose(sources, lambda: outward) == wanted


def test_the_own_address_is_the_one_that_routes_to_the_store(monkeypatch):
    for variable in ("MASTER_ADDR", "AIKIDO_SOCKET_IFNAME"):
        monkeypatch.delenv(variable, raising=False)
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    nested = dist.PrefixStore("a", dist.PrefixStore("b", store))
    assert _address.own_address(Options(), nested) == "127.0.0.1"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    assert _address.own_address(Options(), dist.HashStore()) == "127.0.0.1"
    assert _address.own_address(Options(), None) == "127.0.0.1"
    # A name that does not resolve is passed over.
    monkeypatch.setenv("MASTER_ADDR", "no.such.host.invalid")
    assert _address.own_address(Options(), dist.HashStore())
    assert _address.own_address(Options(socket_ifname="lo"), store) == "127.0.0.1"


def test_towards_its_own_name_a_machine_with_a_network_gives_an_address_of_it(
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


def test_an_interface_that_is_not_here_is_named():
    with pytest.raises(ConfigError, match="nosuch0"):
        _C.interface_address("nosuch0")
    with pytest.raises(ConfigError, match="nosuch0"):
        _address.own_address(Options(socket_ifname="nosuch0"), dist.HashStore())
