# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Strict all_reduce by each algorithm except direct, in several processes."""

import hashlib
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch import Options, _backend, _links
from aikido_torch.errors import AikidoError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import die, late, run_ranks
from harness.failures import failure_of
from harness.memory import COMPLEX, DTYPES, is_close, same_bits, values
from harness.operations import fold, ops_of

ALGORITHMS = ("ring", "halving_doubling", "tree", "two_level", "one_owner")
# Fewer elements than ranks, uneven shards, more than one chunk per shard.
COUNTS = (0, 1, 3, 5_000, 300_001)
VICTIM = 1


def reduce_everything(rank, size):
    wrong, bits = [], hashlib.sha256()
    for dtype in DTYPES:
        # Torch refuses to multiply complex numbers; aikido_torch.all_reduce does not.
        is_ours = dtype in COMPLEX
        all_reduce = aikido_torch.all_reduce if is_ours else dist.all_reduce
        for op in (*ops_of(dtype), *(("PRODUCT",) if is_ours else ())):
            for count in COUNTS if dtype in ("float32", "int64") else (3, 5_000):
                given = [values(dtype, (count,), count, r) for r in range(size)]
                tensor = given[rank].clone()
                all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                expected = fold(op, given)
                # The fold does not follow the order of ranks, and 16-bit floats are
                # rounded by each rank that folds.
                is_rounded = dtype in (
                    *COMPLEX,
                    "float16",
                    "bfloat16",
                    "float32",
                    "float64",
                )
                is_same = is_close if is_rounded else same_bits
                if not is_same(tensor, expected):
                    wrong.append(f"{dtype} {op} {count}")
                bits.update(tensor.view(torch.uint8).numpy().tobytes())
    return wrong, bits.hexdigest()


@pytest.mark.beside
@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_dtype_and_op_matches_the_reference_on_all_ranks(algorithm, size):
    options = Options(collectives_algorithm=algorithm)
    results = run_ranks(size, reduce_everything, options=options)
    for wrong, bits in results:
        assert wrong == []
        assert bits == results[0][1]


def on_hosts(rank, size, folder, hosts, algorithm, program):
    """Runs `program` on ranks that seem to be on several hosts.

    Ranks with different addresses of loopback count as ranks on different hosts.
    """
    _backend.own_address = lambda *_: f"127.0.0.{hosts[rank] + 2}"
    dist.init_process_group(
        "aikido",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        pg_options=Options(collectives_algorithm=algorithm),
    )
    backend = _backend.backend_of(None)
    found = _links.find_hosts(backend, timedelta(seconds=30))
    return found, program(rank, size)


@pytest.mark.parametrize(
    "hosts", [[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0, 1], [0, 1, 2], [0, 0, 0]]
)
def test_two_level_works_for_ranks_on_any_hosts(hosts, tmp_path):
    args = (str(tmp_path), hosts, "two_level", reduce_everything)
    results = run_ranks(len(hosts), on_hosts, *args, backend=None)
    for found, (wrong, bits) in results:
        assert found == hosts
        assert wrong == []
        assert bits == results[0][1][1]


def mix(rank, size):
    """Strict calls and calls that may skip, all in progress at once."""
    given = torch.arange(10_000.0)
    policy = SkipStraggler(min_contributors=size, floor_ms=5000, ceiling_ms=5000)
    tensors = [given * (rank + 1) for _ in range(12)]
    works = [
        aikido_torch.all_reduce(tensor, policy=policy, async_op=True)
        if i % 3 == 0
        else dist.all_reduce(tensor, async_op=True)
        for i, tensor in enumerate(tensors)
    ]
    for work in works:
        work.wait()
    return all(torch.equal(tensor, given * 10) for tensor in tensors)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_calls_that_may_skip_do_not_use_the_algorithm(algorithm):
    options = Options(collectives_algorithm=algorithm)
    assert run_ranks(4, mix, options=options) == [True] * 4


def choose(rank, size):
    """Sums of many sizes; ranks with different algorithms would get an error."""
    group = dist.new_group(pg_options=Options(collectives_algorithm="auto"))
    given = torch.arange(1 << 20, dtype=torch.float32)
    sums = []
    for exponent in range(21):
        tensor = given[: 1 << exponent] * (rank + 1)
        dist.all_reduce(tensor, group=group)
        sums.append(torch.equal(tensor, given[: 1 << exponent] * 15))
    return sums


def test_ranks_on_several_hosts_choose_the_same_algorithm(tmp_path):
    hosts = [0, 1, 0, 1, 1]
    args = (str(tmp_path), hosts, "auto", choose)
    for found, sums in run_ranks(5, on_hosts, *args, backend=None):
        assert found == hosts
        assert sums == [True] * 21


def test_ranks_choose_the_same_algorithm():
    options = Options(collectives_algorithm="auto")
    for sums in run_ranks(5, choose, options=options):
        assert sums == [True] * 21


def lose_a_rank(rank, size, count):
    for _ in range(3):
        dist.all_reduce(torch.ones(count))
    dist.barrier()
    if rank == VICTIM:
        die(after=0.3)
    failure = failure_of(lambda: None)
    for _ in range(100_000):
        failure = failure_of(lambda: dist.all_reduce(torch.ones(count)))
        if failure.name != "nothing":
            break
    return failure, failure_of(lambda: dist.all_reduce(torch.ones(count)))


@pytest.mark.parametrize("count", [10, 2_000_000])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_rank_that_is_killed_in_a_call_is_named_on_all_ranks(algorithm, count):
    results = run_ranks(
        5,
        lose_a_rank,
        count,
        options=Options(collectives_algorithm=algorithm),
        group_timeout=60,
        may_die={VICTIM},
    )
    for rank, seen in enumerate(results):
        if rank == VICTIM:
            continue
        for failure in seen:
            assert failure.name == "PeerLostError", failure.text
            assert failure.rank == VICTIM
            assert failure.seconds < 10


def call_late(rank, size):
    dist.barrier()
    if rank == VICTIM:
        late(2.5)
    return failure_of(lambda: dist.all_reduce(torch.ones(50_000)))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_time_out_names_the_rank_that_has_not_called(algorithm):
    options = Options(collectives_algorithm=algorithm)
    for failure in run_ranks(4, call_late, options=options, group_timeout=1.5):
        assert failure.name == "TimedOutError", failure.text
        assert "still missing: rank 1 (its last call" in failure.text
        assert failure.rank == VICTIM


def differ_in_size(rank, size):
    # 128 KiB on rank 0, and slightly more on the other ranks.
    tensor = torch.ones((128 << 8) + min(rank, 1))
    return failure_of(lambda: dist.all_reduce(tensor))


@pytest.mark.parametrize(
    ("options", "has_one_owner"),
    [
        (Options(), True),
        (Options(collectives_min_shard_bytes=16 << 10), True),
        (Options(collectives_min_shard_bytes=8 << 10), False),
        (Options(transport_shared_memory_bytes=0), False),
    ],
)
def test_small_sums_of_ranks_that_share_memory_and_few_cores_have_one_owner(
    options, has_one_owner
):
    for failure in run_ranks(4, differ_in_size, options=options):
        told = failure.text
        assert "all_reduce(sum, float32[32768])" in told
        is_by_one = "float32[32768]) by one_owner" in told
        assert is_by_one == (has_one_owner and (os.cpu_count() or 1) < 4)
        assert "float32[32769]) by" not in told


def init_with(rank, size, folder, names):
    try:
        dist.init_process_group(
            "aikido",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=size,
            pg_options=Options(collectives_algorithm=names[rank]),
        )
    except AikidoError as error:
        return type(error).__name__, str(error)
    return "taken", ""


def test_ranks_with_different_algorithms_are_named_with_both(tmp_path):
    names = ["ring", "ring", "tree"]
    answers = run_ranks(3, init_with, str(tmp_path), names, backend=None)
    both = (
        "collectives_algorithm=ring and rank 2 has collectives_algorithm=tree; give "
        "this option the same value on every rank"
    )
    for rank in (0, 2):
        assert answers[rank][0] == "ConfigError"
        assert both in answers[rank][1]
