# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""At which of its addresses this process tells the other ranks to reach it."""

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable

from torch.distributed.distributed_c10d import PrefixStore, Store

from aikido_torch import _C
from aikido_torch.errors import ConfigError
from aikido_torch.options import Options

# Reserved for documentation: whoever has a route to the outside has one to these, and
# nothing is ever sent there.
_OUTSIDE = ("192.0.2.1", "2001:db8::1")
_LOOPBACK = "127.0.0.1"


def choose(
    sources: Iterable[tuple[str, str | None]], outward: Callable[[], str | None]
) -> str:
    """The address that the other ranks are told.

    Many systems list a machine's own name as 127.0.1.1, and towards it the machine
    speaks from loopback, which no other machine can reach. So loopback counts only
    where a peer was literally given as loopback.

    Args:
        sources: peers, best first, each with the address from which this machine would
            speak to it; None for one that does not resolve.
        outward: the address from which this machine would speak to others; None if it
            has no network.
    """
    for peer, source in sources:
        if source is None:
            continue
        if is_loopback(source) and not is_loopback(peer):
            return outward() or source
        return source
    return _LOOPBACK


def is_loopback(host: str) -> bool:
    """Whether `host` says by itself that it is this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").lower() in ("localhost", "localhost.localdomain")
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def own_address(options: Options, store: Store | None) -> str:
    """The numeric address at which the other ranks can reach this one.

    Raises:
        ConfigError: there is no such interface as the options name.
    """
    interface = options.value("socket_ifname")
    if interface:
        return _C.interface_address(str(interface))
    peers = (_host_of(store), os.environ.get("MASTER_ADDR"), socket.gethostname())
    return choose(((peer, _source(peer)) for peer in peers if peer), _outward_address)


def _host_of(store: Store | None) -> str | None:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", None)


def _source(peer: str) -> str | None:
    try:
        return _C.source_address(peer)
    except ConfigError:
        return None


def _outward_address() -> str | None:
    for peer in _OUTSIDE:
        source = _source(peer)
        if source is not None and not is_loopback(source):
            return source
    # No default route: the first interface that has an address.
    names = (name for _, name in socket.if_nameindex())
    for name in names:
        try:
            address = _C.interface_address(name)
        except ConfigError:
            continue
        if not is_loopback(address):
            return address
    return None
