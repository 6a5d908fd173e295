# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""No benchmark: the least that ranks must do, as operations to be timed.

Each is what torch needs to reach a backend that does nothing, and then what no backend
can do without: where memory is shared cpp/least_exchange.cpp, over TCP what plain
sockets take, cpp/least_sockets.cpp. A backend that does nothing is not written down by
torch's flight recorder; here it is where that writes down aikido, of which there must
be a group. But in a ping-pong a rank waits for what the other does next: its least is
that of a backend that hands messages over and does nothing else, bare_backend.py.
"""

import ctypes
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # registers "fake"

from aikido_torch import Options
from aikido_torch._address import own_address
from benchmarks import bare_backend, programs
from benchmarks.common import SHARED_MEMORY

LIBRARY = "least_exchange.so"
LIMIT_S = 30.0  # for ranks to connect to each other
Address = tuple[str, int]  # of a host, and the port
# Of each socket, as a backend may choose. With the system's own, which grow to MiBs,
# bytes leave the caches before they are read: an allreduce of 16 MiB takes two ranks
# 13 ms instead of 8, and four 22 instead of 15. Up to 1 MiB there is no difference.
SEND_BUFFER_BYTES = 256 << 10
assert fake_pg


class Least:
    """One way in which ranks exchange; all of them must make it and its operations."""

    cases: tuple[str, ...]

    def __init__(self) -> None:
        self._group = dist.new_group(backend="fake")
        ranks = list(range(dist.get_world_size()))
        self._recorder = _attach_flight_recorder(self._group, ranks)
        self._held: list[torch.Tensor] = []  # the library knows their addresses
        # Without letting go of the interpreter: that would be no part of the least.
        self._library = ctypes.PyDLL(str(programs.path_of(LIBRARY)))

    def operation(self, name: str, num_bytes: int, times: int) -> Callable[[], object]:
        """Of one of `cases`; `times` is the number of round trips of a ping-pong."""
        raise NotImplementedError

    def close(self) -> None:
        """Lets go of what is shared with the others; nothing is called after it."""


class LeastInMemory(Least):
    """Ranks copy from memory that they share."""

    cases = ("allreduce", "alltoall", "broadcast")

    def __init__(self, bare: Path | None) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        self._library.least_open.restype = ctypes.c_void_p
        names = [f"/least_exchange_{torch.randint(1 << 62, ()).item()}"]
        dist.broadcast_object_list(names)
        name = names[0].encode()
        if rank == 0:
            self._place = self._open(name, rank, size)
        dist.barrier()
        if rank != 0:
            self._place = self._open(name, rank, size)
        dist.barrier()
        if rank == 0:
            self._library.least_unlink(name)
        if bare is not None:
            self.cases += ("ping-pong",)
            self._bare = _new_bare_group(bare)

    def _open(self, name: bytes, rank: int, size: int) -> ctypes.c_void_p:
        place = self._library.least_open(name, rank, size)
        if place is None:
            raise SystemExit(f"Rank {rank} can share no memory with the others.")
        return ctypes.c_void_p(place)

    def operation(self, name: str, num_bytes: int, times: int) -> Callable[[], object]:
        group, place, library = self._group, self._place, self._library
        # For torch's backend, which may copy what it is given.
        few, others = torch.zeros(2, dist.get_world_size())
        into = torch.zeros(num_bytes // 4)
        self._held.append(into)
        address, room = ctypes.c_void_p(into.data_ptr()), ctypes.c_size_t(num_bytes)

        def allreduce() -> None:
            # Whoever adds up, each must write the result once all have come.
            dist.all_reduce(few, group=group)
            library.least_alltoall(place, address, room)

        def broadcast() -> None:
            dist.broadcast(few, 0, group=group)
            library.least_broadcast(place, address, room)

        def alltoall() -> None:
            dist.all_to_all_single(few, others, group=group)
            library.least_alltoall(place, address, room)

        def ping_pong() -> None:
            round_trips(into, times, self._bare)

        return {
            "allreduce": allreduce,
            "alltoall": alltoall,
            "broadcast": broadcast,
            "ping-pong": ping_pong,
        }[name]


class LeastOverTcp(Least):
    """Each rank has a socket with every other, on its host or another one."""

    cases = ("allreduce", "alltoall", "broadcast", "allgather", "reduce_scatter")

    def __init__(self) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        host = own_address(Options(), None)
        self._sockets = connect_all(rank, size, _told_by_all, host)
        descriptors = [-1 if s is None else s.fileno() for s in self._sockets]
        self._library.least_sockets_open.restype = ctypes.c_void_p
        self._place = ctypes.c_void_p(
            self._library.least_sockets_open(
                (ctypes.c_int * size)(*descriptors), rank, size
            )
        )

    def operation(self, name: str, num_bytes: int, times: int) -> Callable[[], object]:
        group, place = self._group, self._place
        size = dist.get_world_size()
        # Numbers, so that no page is the one of zeros that all untouched pages are.
        whole, other = torch.rand(2, num_bytes // 4)
        part = torch.rand(num_bytes // 4 // size)
        self._held += [whole, other, part]
        few, others = torch.zeros(2, size)  # for torch's backend, which may copy
        one = others[:1]
        all_of, other_of, part_of = (
            ctypes.c_void_p(t.data_ptr()) for t in (whole, other, part)
        )
        all_room = ctypes.c_size_t(num_bytes)
        part_room = ctypes.c_size_t(part.nbytes)
        exchange = getattr(self._library, f"least_sockets_{name}")

        def allreduce() -> None:
            dist.all_reduce(few, group=group)
            _check(exchange(place, all_of, all_room))

        def broadcast() -> None:
            dist.broadcast(few, 0, group=group)
            _check(exchange(place, all_of, all_room))

        def alltoall() -> None:
            dist.all_to_all_single(few, others, group=group)
            _check(exchange(place, other_of, all_of, part_room))

        def allgather() -> None:
            dist.all_gather_into_tensor(few, one, group=group)
            _check(exchange(place, part_of, all_of, part_room))

        def reduce_scatter() -> None:
            dist.reduce_scatter_tensor(one, few, group=group)
            _check(exchange(place, all_of, part_of, part_room))

        return {
            "allreduce": allreduce,
            "alltoall": alltoall,
            "broadcast": broadcast,
            "allgather": allgather,
            "reduce_scatter": reduce_scatter,
        }[name]

    def close(self) -> None:
        self._library.least_sockets_close(self._place)
        for connected in self._sockets:
            if connected is not None:
                connected.close()


def least_over(transport: str | None, bare: Path | None = None) -> Least | None:
    """For the name of a transport of allreduce.py; without one there is none.

    `bare`: what bare_backend.build() has built, for a ping-pong.
    """
    if transport is None:
        return None
    return LeastInMemory(bare) if transport == SHARED_MEMORY else LeastOverTcp()


def round_trips(tensor: torch.Tensor, times: int, group: dist.ProcessGroup) -> None:
    """Between ranks 0 and 1; the others do nothing."""
    rank = dist.get_rank()
    for _ in range(times if rank < 2 else 0):
        if rank == 0:
            dist.send(tensor, 1, group=group)
            dist.recv(tensor, 1, group=group)
        else:
            dist.recv(tensor, 0, group=group)
            dist.send(tensor, 0, group=group)


def _new_bare_group(path: Path) -> dist.ProcessGroup:
    """Of ranks 0 and 1, for more of which it has no room; all ranks make it."""
    module = bare_backend.load(path)

    def make(store: dist.Store, rank: int, size: int, timeout: object) -> object:
        if rank != 0:
            made = module.make(rank, size, store.get("name").decode())
            store.set("is open", "")
            return made
        name = f"/bare_backend_{torch.randint(1 << 62, ()).item()}"
        made = module.make(rank, size, name)
        store.set("name", name)
        store.wait(["is open"])
        module.unlink(name)
        return made

    dist.Backend.register_backend("bare", make, devices=["cpu"])
    return dist.new_group([0, 1], backend="bare")


def connect_all(
    rank: int,
    size: int,
    told_by_all: Callable[[Address], list[Address]],
    host: str = "127.0.0.1",
) -> list[socket.socket | None]:
    """A socket with each other rank, by rank, and None for this one.

    `told_by_all` gives what all ranks say when each says where it listens; `host` is
    where the others find this rank.
    """
    connected: list[socket.socket | None] = [None] * size
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=size) as server:
        server.settimeout(LIMIT_S)
        addresses = told_by_all((host, server.getsockname()[1]))
        for other in range(rank):
            end = socket.create_connection(addresses[other], LIMIT_S)
            end.sendall(bytes([rank]))
            connected[other] = end
        for _ in range(rank + 1, size):
            end, _ = server.accept()
            end.settimeout(LIMIT_S)
            (other,) = end.recv(1)
            connected[other] = end
    for end in connected:
        if end is not None:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            end.setblocking(False)
    return connected


def _told_by_all(address: Address) -> list[Address]:
    addresses = [address] * dist.get_world_size()
    dist.all_gather_object(addresses, address)
    return addresses


def _check(error: int) -> None:
    if error == 0:
        return
    why = os.strerror(error)
    if error == errno.ETIMEDOUT:
        why = "nothing has come from them for 30 s"
    raise SystemExit(
        f"Rank {dist.get_rank()} cannot go on with the least over TCP, for its sockets "
        f"with the others failed: {why}."
    )


def _attach_flight_recorder(group: dist.ProcessGroup, ranks: list[int]) -> object:
    """What keeps it attached; None where torch has none, or has not attached one."""
    attached = getattr(dist.distributed_c10d._world, "pg_flight_recorder_hooks", {})
    if not attached:
        return None
    return torch._C._distributed_c10d.FlightRecorderHook.attach(group, ranks)
