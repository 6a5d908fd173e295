# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import ctypes
import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from benchmarks import least_exchange, programs

SIZE = 3
PATH = programs.path_of(least_exchange.LIBRARY)
needs_library = pytest.mark.skipif(
    not PATH.exists(), reason="build/core has no least_exchange.so"
)


def by_all(call):
    """The results of `call` on all ranks, each on a thread of its own."""
    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(call, range(SIZE)))


def connected():
    addresses, meeting = [("", 0)] * SIZE, threading.Barrier(SIZE, timeout=20)

    def connect(rank):
        def told_by_all(address):
            addresses[rank] = address
            meeting.wait()
            return addresses

        return least_exchange.connect_all(rank, SIZE, told_by_all)

    return by_all(connect)


def close(sockets):
    for end in sockets:
        if end is not None:
            end.close()


@pytest.fixture
def mesh():
    ends = connected()
    yield ends
    for sockets in ends:
        close(sockets)


@pytest.fixture
def call(mesh):
    """Calls a function of the library on a rank, with tensors and numbers of bytes."""
    library = ctypes.CDLL(str(PATH))  # CDLL releases the GIL, because ranks are threads
    library.least_sockets_open.restype = ctypes.c_void_p
    places = []
    for rank, sockets in enumerate(mesh):
        ends = [-1 if s is None else s.fileno() for s in sockets]
        place = library.least_sockets_open((ctypes.c_int * SIZE)(*ends), rank, SIZE)
        places.append(ctypes.c_void_p(place))

    def call(rank, name, *tensors, num_bytes):
        addresses = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        function = getattr(library, f"least_sockets_{name}")
        return function(places[rank], *addresses, ctypes.c_size_t(num_bytes))

    yield call
    for place in places:
        library.least_sockets_close(place)


def test_each_rank_has_a_socket_with_every_other(mesh):
    for rank, sockets in enumerate(mesh):
        for other, end in enumerate(sockets):
            if rank == other:
                assert end is None
                continue
            assert not end.getblocking()
            assert end.getpeername() == mesh[other][rank].getsockname()


# A small count, and one above the limits for relaying and for cutting.
@pytest.mark.parametrize("count", [5, 300_000])
@needs_library
def test_all_have_what_rank_0_had(call, count):
    data = [torch.arange(count) + rank for rank in range(SIZE)]
    errors = by_all(
        lambda r: call(r, "broadcast", data[r], num_bytes=data[r].nbytes),
    )
    assert errors == [0] * SIZE
    assert all(torch.equal(tensor, torch.arange(count)) for tensor in data)


@pytest.mark.parametrize("count", [5, 300_000])
@needs_library
def test_blocks_go_where_they_belong(call, count):
    block = torch.arange(count)
    ranks = range(SIZE)
    sources = [torch.cat([block + 10 * r + to for to in ranks]) for r in ranks]
    results = [torch.zeros_like(source) for source in sources]
    num_bytes = block.nbytes
    errors = by_all(
        lambda r: call(r, "alltoall", sources[r], results[r], num_bytes=num_bytes)
    )
    assert errors == [0] * SIZE
    for r in ranks:
        wanted = torch.cat([block + 10 * other + r for other in ranks])
        assert torch.equal(results[r], wanted)

    errors = by_all(
        lambda r: call(r, "allgather", sources[r], results[r], num_bytes=num_bytes)
    )
    assert errors == [0] * SIZE
    gathered = torch.cat([block + 10 * other for other in ranks])
    assert all(torch.equal(result, gathered) for result in results)


@pytest.mark.parametrize("count", [3, 5000, 20_000, 300_001])
@needs_library
def test_nothing_is_added_up_but_every_byte_is_written(call, count):
    # The owner of a part writes another rank's values in place of a sum.
    data = [torch.full((count,), 1 + 10 * rank).float() for rank in range(SIZE)]
    errors = by_all(lambda r: call(r, "allreduce", data[r], num_bytes=data[r].nbytes))
    assert errors == [0] * SIZE
    assert torch.equal(data[0], data[1])
    assert torch.equal(data[0], data[2])
    assert data[0][0] == 11  # the value of rank 1, written by rank 0
    assert set(data[0].tolist()) <= {1, 11}

    results = [torch.zeros(count) for _ in range(SIZE)]
    sources = [torch.cat([data[0] + to for to in range(SIZE)]) for _ in range(SIZE)]
    num_bytes = results[0].nbytes
    errors = by_all(
        lambda r: call(r, "reduce_scatter", sources[r], results[r], num_bytes=num_bytes)
    )
    assert errors == [0] * SIZE
    assert all(torch.equal(results[r], data[0] + r) for r in range(SIZE))


@needs_library
def test_who_waits_for_a_rank_that_is_gone_is_told(mesh, call):
    close(mesh[0])
    data = torch.zeros(5)
    assert call(1, "broadcast", data, num_bytes=data.nbytes) == errno.ECONNRESET
