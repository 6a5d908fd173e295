# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A call that one rank refuses for its arguments fails on all ranks at once."""

import time

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.errors import ConfigError
from aikido_torch.testing import run_ranks

SIZE = 3
ODD = 1
# Without the error message the other ranks would wait this long.
GROUP_TIMEOUT = 60
SOON_S = 10.0


def ones(*shape):
    return torch.ones(*shape)


def calls_of(rank, size):
    """Name -> (call of the other ranks, call of the odd rank)."""
    row = ones(6)
    rows = [ones(6) for _ in range(size)]
    return {
        "all_to_all_single": (
            lambda: dist.all_to_all_single(ones(6), ones(6)),
            lambda: dist.all_to_all_single(ones(6), ones(6), [2] * size, [3] * size),
        ),
        "all_to_all": (
            lambda: dist.all_to_all([ones(6) for _ in rows], rows),
            lambda: dist.all_to_all([ones(6) for _ in rows], rows[:2]),
        ),
        "all_reduce": (
            lambda: dist.all_reduce(row),
            lambda: dist.all_reduce(ones(1).expand(6)),
        ),
        "op": (
            lambda: dist.all_reduce(row),
            lambda: dist.all_reduce(row, op=dist.ReduceOp.BAND),
        ),
        "sparse": (
            lambda: dist.all_reduce(torch.eye(3).to_sparse()),
            lambda: dist.all_reduce(torch.eye(3).to_sparse(), op=dist.ReduceOp.MAX),
        ),
        "all_gather_into_tensor": (
            lambda: dist.all_gather_into_tensor(ones(6 * size), row),
            lambda: dist.all_gather_into_tensor(ones(5), row),
        ),
        "large": (
            lambda: dist.all_gather_into_tensor(ones(600_000 * size), ones(600_000)),
            lambda: dist.all_gather_into_tensor(ones(5), ones(600_000)),
        ),
        "reduce_scatter_tensor": (
            lambda: dist.reduce_scatter_tensor(ones(2), row),
            lambda: dist.reduce_scatter_tensor(ones(2), ones(7)),
        ),
        # Three collectives in one call.
        "all_reduce_coalesced": (
            lambda: dist.all_reduce_coalesced([ones(6), ones(7), ones(8)]),
            lambda: dist.all_reduce_coalesced([ones(6), ones(1).expand(7), ones(8)]),
        ),
        "policy": (
            lambda: aikido_torch.all_reduce(row),
            lambda: aikido_torch.all_reduce(
                ones(6).int(),
                policy=aikido_torch.straggler.SkipStraggler(),
            ),
        ),
    }


def refuse_on_one(rank, size, first):
    """`first`: "odd" or "others", the ranks that call first."""
    seen = {}
    for name, (usual, odd) in calls_of(rank, size).items():
        dist.barrier()
        if (rank == ODD) != (first == "odd"):
            time.sleep(0.2)
        start = time.perf_counter()
        with pytest.raises(ConfigError) as caught:
            (odd if rank == ODD else usual)()
        is_soon = time.perf_counter() - start < SOON_S
        # The refused call does not affect the next collective.
        tensor = torch.full((5,), rank + 1.0)
        dist.all_reduce(tensor)
        sound = tensor.tolist() == [size * (size + 1) / 2] * 5
        error = caught.value
        number = error.sequence_number
        seen[name] = (str(error), error.rank, number, is_soon, sound)
    return seen


@pytest.mark.parametrize("first", ["odd", "others"])
def test_all_ranks_fail_at_once_with_the_error_of_the_refusing_rank(first):
    results = run_ranks(SIZE, refuse_on_one, first, group_timeout=GROUP_TIMEOUT)
    for seen in results:
        assert seen == results[ODD]
    for name, (text, rank, number, is_soon, sound) in results[ODD].items():
        assert f"on rank {ODD}: argument " in text or name == "policy", name
        assert number > 0
        assert (rank, is_soon, sound) == (ODD, True, True), name


def refuse_on_all(rank, size):
    """Each rank calls at another time; sequence numbers and later calls still match."""
    backend = aikido_torch._backend.backend_of(None)
    texts = []
    for i in range(20):
        time.sleep(0.01 * ((rank + i) % size))
        with pytest.raises(ConfigError) as caught:
            dist.all_to_all_single(ones(6), ones(6), [2] * size, [3] * size)
        texts.append(f"on rank {rank}: " in str(caught.value))
        if i % 5 == 0:
            tensor = ones(3)
            dist.all_reduce(tensor)
            texts.append(tensor.tolist() == [size] * 3)
    dist.barrier()
    return all(texts), backend._get_sequence_number_for_group()


def test_a_call_that_all_refuse_gives_each_rank_its_own_error_and_leaves_no_trace():
    assert run_ranks(SIZE, refuse_on_all) == [(True, 25)] * SIZE


def broadcast_to_one_that_refuses(rank, size):
    """The other ranks return before the last rank refuses, so only that rank fails."""
    failed = False
    if rank == 2:
        time.sleep(0.3)
        with pytest.raises(ConfigError):
            dist.broadcast(ones(1).expand(6), src=0)
        failed = True
    else:
        dist.broadcast(ones(6), src=0)
        time.sleep(0.6)
    tensor = ones(3)
    dist.all_reduce(tensor)
    return failed, tensor.tolist()


def test_a_call_that_others_have_completed_stays_complete_and_the_group_works():
    results = run_ranks(SIZE, broadcast_to_one_that_refuses)
    assert results == [(rank == 2, [SIZE] * 3) for rank in range(SIZE)]


def unreadable(*shape):
    """A tensor that passes all checks and throws when its memory is accessed."""
    tensor = ones(*shape)
    torch._C._set_throw_on_mutable_data_ptr(tensor)
    return tensor


def fail_after_the_checks(rank, size):
    """Calls without memory for a copy or for the result still take their numbers."""
    # One element; a copy would need more than the address space.
    vast = ones(1).expand(2**60)
    outs = [ones(6) for _ in range(size)]
    calls = {
        "broadcast": (
            lambda: dist.broadcast(ones(6), src=ODD),
            lambda: dist.broadcast(vast, src=ODD),
        ),
        "reduce_scatter": (
            lambda: dist.reduce_scatter(ones(6), outs),
            lambda: dist.reduce_scatter(unreadable(6), outs),
        ),
        "all_reduce": (
            lambda: aikido_torch.all_reduce(ones(6)),
            lambda: aikido_torch.all_reduce(unreadable(6)),
        ),
        "all_gather": (
            lambda: dist.all_gather(outs, ones(6)),
            lambda: dist.all_gather([*outs[1:], unreadable(6)], ones(6)),
        ),
        # The first of three collectives is executed.
        "all_reduce_coalesced": (
            lambda: dist.all_reduce_coalesced([ones(6), ones(7), ones(8)]),
            lambda: dist.all_reduce_coalesced([ones(6), unreadable(7), ones(8)]),
        ),
    }
    backend = aikido_torch._backend.backend_of(None)
    seen = {}
    for name, (usual, odd) in calls.items():
        with pytest.raises(RuntimeError) as caught:
            (odd if rank == ODD else usual)()
        # It has the same shape as the failed call and must not be matched with it.
        tensor = torch.full((6,), rank + 1.0)
        dist.all_reduce(tensor)
        sound = tensor.tolist() == [size * (size + 1) / 2] * 6
        number = backend._get_sequence_number_for_group()
        seen[name] = (type(caught.value).__name__, str(caught.value), sound, number)
    return seen


def test_a_call_that_fails_after_its_checks_fails_on_all_and_takes_its_numbers():
    numbers = {
        "broadcast": 2, "reduce_scatter": 4, "all_reduce": 6, "all_gather": 8,
        "all_reduce_coalesced": 12,
    }  # fmt: skip
    results = run_ranks(SIZE, fail_after_the_checks, group_timeout=GROUP_TIMEOUT)
    for rank, seen in enumerate(results):
        assert {name: number for name, (*_, number) in seen.items()} == numbers
        for name, (kind, text, sound, _) in seen.items():
            assert sound, name
            if rank == ODD:
                # The error of torch, unchanged.
                assert kind == "RuntimeError", name
                assert "allocate memory" in text or "data pointer" in text, name
            else:
                assert kind == "AbortedError", name
                assert f" on rank {ODD}: it failed there before any of its data" in text
