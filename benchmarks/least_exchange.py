# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The least exchange: the work that no backend can avoid, as operations to be timed.

It is no benchmark itself. Each operation consists of torch's work to reach a backend
that does nothing, followed by the unavoidable work of a backend. With shared memory the
latter is cpp/least_exchange.cpp; over TCP it is the work of plain sockets,
cpp/least_sockets.cpp.

torch's flight recorder does not record a backend that does nothing. So it is attached
here if it records aikido, which needs a group of aikido. In a ping-pong a rank waits
for the next message of the other rank. So its least is that of a backend that only
passes messages on, bare_backend.py.
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
Address = tuple[str, int]  # host address and port
# Send buffer of each socket, as a backend may choose it. With the system's default,
# which grows to MiBs, bytes leave the caches before they are read: an allreduce of 16
# MiB takes two ranks 13 ms instead of 8, and four ranks 22 instead of 15. Up to 1 MiB
# there is no difference.
SEND_BUFFER_BYTES = 256 << 10
assert fake_pg


class Least:
    """One method of exchange; all ranks must construct it and its operations."""

    cases: tuple[str, ...]

    def __init__(self) -> None:
        self._group = dist.new_group(backend="fake")
        ranks = list(range(dist.get_world_size()))
        self._recorder = _attach_flight_recorder(self._group, ranks)
        self._held: list[torch.Tensor] = []  # the library has their addresses
        # PyDLL keeps the GIL: releasing it is not part of the least work.
        self._library = ctypes.PyDLL(str(programs.path_of(LIBRARY)))

    def operation(self, name: str, num_bytes: int, times: int) -> Callable[[], object]:
        """An operation of one of `cases`; `times` is the number of round trips of a
        ping-pong.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Releases resources that are shared with other ranks; call nothing after
        it.
        """


class LeastInMemory(Least):
    """Exchange by copies from memory that the ranks share."""

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
        # Arguments for torch's backend, which may copy its input.
        few, others = torch.zeros(2, dist.get_world_size())
        into = torch.zeros(num_bytes // 4)
        self._held.append(into)
        address, room = ctypes.c_void_p(into.data_ptr()), ctypes.c_size_t(num_bytes)

        def allreduce() -> None:
            # Whichever rank adds up, each rank must write the result after all inputs
            # arrived.
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
    """Exchange over sockets: one between each pair of ranks, on one host or several."""

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
        # Random numbers, because all untouched pages are the same page of zeros.
        whole, other = torch.rand(2, num_bytes // 4)
        part = torch.rand(num_bytes // 4 // size)
        self._held += [whole, other, part]
        # Arguments for torch's backend, which may copy its input.
        few, others = torch.zeros(2, size)
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
    """The method for a transport of allreduce.py; None without a transport.

    `bare`: result of bare_backend.build(), for a ping-pong.
    """
    if transport is None:
        return None
    return LeastInMemory(bare) if transport == SHARED_MEMORY else LeastOverTcp()


def round_trips(tensor: torch.Tensor, times: int, group: dist.ProcessGroup) -> None:
    """Round trips between ranks 0 and 1; the other ranks do nothing."""
    rank = dist.get_rank()
    for _ in range(times if rank < 2 else 0):
        if rank == 0:
            dist.send(tensor, 1, group=group)
            dist.recv(tensor, 1, group=group)
        else:
            dist.recv(tensor, 0, group=group)
            dist.send(tensor, 0, group=group)


def _new_bare_group(path: Path) -> dist.ProcessGroup:
    """Group of ranks 0 and 1, the most that it supports; all ranks construct it."""
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
    """A socket with each other rank, by rank, and None for this rank.

    `told_by_all` gathers the listening addresses of all ranks; `host` is the address of
    this rank for the others.
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
    """Object that keeps the recorder attached; None if torch has or uses none."""
    attached = getattr(dist.distributed_c10d._world, "pg_flight_recorder_hooks", {})
    if not attached:
        return None
    return torch._C._distributed_c10d.FlightRecorderHook.attach(group, ranks)
