# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""No benchmark: the least that ranks of one host must do, as operations to be timed.

Each is what torch needs to reach a backend that does nothing, and then what no backend
can do without: cpp/least_exchange.cpp. Both are lower bounds, so their sum is one. A
backend that does nothing is not written down by torch's flight recorder; here it is
where that writes down aikido, of which there must be a group.
"""

import ctypes
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # registers "fake"

from benchmarks import programs

LIBRARY = "least_exchange.so"
CASES = ("allreduce", "alltoall", "broadcast", "ping-pong")
assert fake_pg


class Least:
    """What this rank shares with the others; all of them must make it and its cases."""

    def __init__(self) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="fake")
        self._recorder = _attach_flight_recorder(self._group, list(range(size)))
        self._held: list[torch.Tensor] = []  # the library knows their addresses
        # Without letting go of the interpreter: that would be no part of the least.
        self._library = ctypes.PyDLL(str(programs.path_of(LIBRARY)))
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

    def _open(self, name: bytes, rank: int, size: int) -> ctypes.c_void_p:
        place = self._library.least_open(name, rank, size)
        if place is None:
            raise SystemExit(f"Rank {rank} can share no memory with the others.")
        return ctypes.c_void_p(place)

    def operation(self, name: str, num_bytes: int, times: int) -> Callable[[], object]:
        """Of one of CASES; `times` is the number of round trips of a ping-pong."""
        group, place, library = self._group, self._place, self._library
        # For torch's backend, which may copy what it is given.
        few, others = torch.zeros(2, dist.get_world_size())
        into = torch.zeros(num_bytes // 4)
        self._held.append(into)
        address, room = ctypes.c_void_p(into.data_ptr()), ctypes.c_size_t(num_bytes)
        rank = dist.get_rank()

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
            # Both at a time: what a rank does behind its message may cost nothing.
            for _ in range(times if rank < 2 else 0):
                dist.send(few, 1 - rank, group=group)
                dist.recv(few, 1 - rank, group=group)
            library.least_ping_pong(place, times)

        return {
            "allreduce": allreduce,
            "alltoall": alltoall,
            "broadcast": broadcast,
            "ping-pong": ping_pong,
        }[name]


def _attach_flight_recorder(group: dist.ProcessGroup, ranks: list[int]) -> object:
    """What keeps it attached; None where torch has none, or has not attached one."""
    attached = getattr(dist.distributed_c10d._world, "pg_flight_recorder_hooks", {})
    if not attached:
        return None
    return torch._C._distributed_c10d.FlightRecorderHook.attach(group, ranks)
