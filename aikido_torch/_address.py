# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Choice of the address at which other ranks reach this process."""

import functools
import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from aikido_torch import _C
from aikido_torch.errors import ConfigError, TimedOutError
from aikido_torch.options import Options

# Addresses reserved for documentation. A machine with a route to the outside has a
# route to them too. Nothing is ever sent there.
_OUTSIDE = ("192.0.2.1", "2001:db8::1")
_LOOPBACK = "127.0.0.1"
# Limit in seconds for one connection to the store, which this process has reached
# before.
_CONNECT_S = 10.0


@dataclass(frozen=True)
class Meeting:
    """Ranks of the first group of a process, and the store that connects them."""

    store: Store
    rank: int
    size: int
    timeout: timedelta


def choose(
    sources: Iterable[tuple[str, str | None]], outward: Callable[[], str | None]
) -> str:
    """The address that this rank gives to the other ranks.

    Many systems list their own host name as 127.0.1.1. A connection to that name has a
    loopback address, which other machines cannot reach. So a loopback address is only
    used if a peer was given as loopback.

    Args:
        sources: peers, best first, each with the local address of a connection to the
            peer; None if the name of the peer does not resolve.
        outward: local address of connections to other machines; None without a network.
    """
    for peer, source in sources:
        if source is None:
            continue
        if is_loopback(source) and not is_loopback(peer):
            return outward() or source
        return source
    return _LOOPBACK


def is_loopback(host: str) -> bool:
    """True if the text `host` alone shows that it is this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").lower() in ("localhost", "localhost.localdomain")
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def own_address(
    options: Options, store: Store | None, meeting: Meeting | None = None
) -> str:
    """The numeric address at which other ranks can reach this rank.

    Args:
        options: may name the interface.
        store: store of the rendezvous.
        meeting: the same store with the ranks of the rendezvous. Each of them calls
            this function. None: uses only the knowledge of this machine.

    Raises:
        ConfigError: the interface in the options does not exist.
        TimedOutError: a rank that may know the address of this rank did not come.
    """
    is_asked = meeting is not None and tell(meeting)
    interface = options.value("socket_ifname")
    if interface:
        return _C.interface_address(str(interface))
    if meeting is not None and is_asked and (told := ask(meeting)) is not None:
        return told
    peers = (host_of(store), os.environ.get("MASTER_ADDR"), socket.gethostname())
    return choose(((peer, _source(peer)) for peer in peers if peer), _outward_address)


def tell(meeting: Meeting) -> bool:
    """Publishes the address at which this rank reaches the store, if needed.

    If the host name of the store leads to loopback, the machine of the store cannot
    know which of its networks the other ranks use. The other ranks know it from their
    connections to the store. Each rank of a group calls this, also if it needs no
    address itself.

    Returns:
        True if the store is on this machine and its name leads to loopback; then call
        `ask`.
    """
    host, port = host_of(meeting.store), port_of(meeting.store)
    is_name = host is not None and not _is_numeric(host) and not is_loopback(host)
    if not is_name or port is None or meeting.size == 1:
        return False
    reached = _reached_address(str(host), port)
    meeting.store.set(_reached_key(meeting.rank), reached or "")
    return reached is None


def ask(meeting: Meeting) -> str | None:
    """The address at which another machine reaches the store on this machine.

    Returns:
        None if all ranks are on this machine.

    Raises:
        TimedOutError: a rank did not come, and it may be the only rank that knows.
    """
    deadline = time.monotonic() + meeting.timeout.total_seconds()
    for rank in range(meeting.size):
        if rank == meeting.rank:
            continue
        told = _read(meeting, rank, deadline)
        if told and _is_here(told):
            return told
    return None


def _reached_key(rank: int) -> str:
    return f"store_reached_by/{rank}"


def _read(meeting: Meeting, rank: int, deadline: float) -> str:
    key = _reached_key(rank)
    left = timedelta(seconds=max(0.001, deadline - time.monotonic()))
    try:
        meeting.store.wait([key], left)
        return str(meeting.store.get(key).decode())
    except RuntimeError as error:
        raise TimedOutError(
            f"Timed out on rank {meeting.rank} after "
            f"{meeting.timeout.total_seconds():g} s while waiting for rank {rank}, "
            f"which may know at which address this machine is reached: its own name "
            f"{host_of(meeting.store)!r} leads to loopback; start all ranks, or set "
            "AIKIDO_SOCKET_IFNAME to the interface that the ranks share.",
            rank=rank,
        ) from error


@functools.cache
def _reached_address(host: str, port: int) -> str | None:
    """Remote address of a connection to the store; None: this machine or none."""
    try:
        with socket.create_connection((host, port), _CONNECT_S) as connection:
            address = str(connection.getpeername()[0])
    except OSError:
        return None
    # A link-local address means nothing on another machine.
    return None if is_loopback(address) or "%" in address else address


def _is_here(address: str) -> bool:
    """True if this machine has `address`. False if a router translates addresses."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bare(store: Store | None) -> Store | None:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def host_of(store: Store | None) -> str | None:
    """Host of a store that is served over TCP, as given; None for other stores."""
    return getattr(_bare(store), "host", None)


def port_of(store: Store | None) -> int | None:
    """Port of a store that is served over TCP; None for other stores."""
    return getattr(_bare(store), "port", None)


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
