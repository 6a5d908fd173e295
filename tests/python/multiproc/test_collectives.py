# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every collective of aikido against a local reference and against Gloo."""

import functools

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.testing import late, run_ranks
from harness.memory import COMPLEX, DTYPES, is_close, same_bits, values
from harness.operations import fold, ops_of

pytestmark = pytest.mark.beside

# Empty, less than one element per shard, uneven shards, several chunks per shard.
COUNTS = (0, 1, 7, 5_000, 300_001)


def reduce_everything(rank, size):
    gloo = dist.new_group(backend="gloo")
    wrong, num_like_gloo = [], 0
    for dtype in DTYPES:
        # Torch refuses to multiply complex numbers; aikido_torch.all_reduce does not.
        is_ours = dtype in COMPLEX
        all_reduce = aikido_torch.all_reduce if is_ours else dist.all_reduce
        for op in (*ops_of(dtype), *(("PRODUCT",) if is_ours else ())):
            for count in COUNTS if dtype in ("float32", "int64") else (7, 5000):
                name = f"{dtype} {op} {count}"
                given = [values(dtype, (count,), count, r) for r in range(size)]
                tensor, theirs = given[rank].clone(), given[rank].clone()
                all_reduce(tensor, op=getattr(dist.ReduceOp, op))
                # Torch's product of complex numbers rounds differently.
                is_same = is_close if is_ours and op == "PRODUCT" else same_bits
                if not is_same(tensor, fold(op, given)):
                    wrong.append(f"{name}: not the reference")
                try:
                    dist.all_reduce(theirs, getattr(dist.ReduceOp, op), group=gloo)
                except (RuntimeError, ValueError):
                    continue  # not supported by Gloo
                num_like_gloo += 1
                low = dtype in ("float16", "bfloat16")
                # Gloo rounds after every addition.
                if not low and not is_close(tensor, theirs):
                    wrong.append(f"{name}: not as gloo")
    return wrong, num_like_gloo


def test_all_reduce_of_every_dtype_and_op_matches_the_reference_and_gloo():
    for wrong, num_like_gloo in run_ranks(3, reduce_everything):
        assert wrong == []
        assert num_like_gloo > 60


def copy_everything(rank, size):
    wrong = []
    other = ("uint16", "uint32", "uint64", "float8_e4m3fn")
    for dtype in (*DTYPES, *other):
        for count in COUNTS if dtype == "float32" else (0, 7, 5000):
            make = functools.partial(copyable, dtype=dtype, count=count)
            own, everybody = make(rank), [make(r) for r in range(size)]
            name = f"{dtype} {count}"
            for root in range(size):
                tensor = make(rank)
                dist.broadcast(tensor, src=root)
                if not same_bits(tensor, everybody[root]):
                    wrong.append(f"{name}: broadcast from {root}")
            outputs = [torch.empty_like(own) for _ in range(size)]
            dist.all_gather(outputs, own)
            if not all(map(same_bits, outputs, everybody)):
                wrong.append(f"{name}: all_gather")
            joined = own.new_empty(size * count)
            dist.all_gather_into_tensor(joined, own)
            if not all(map(same_bits, joined.split(count), everybody)) and count:
                wrong.append(f"{name}: all_gather_into_tensor")
    # In place: the input is this rank's block of the output.
    joined = torch.zeros(size * 5)
    block = joined[rank * 5 : rank * 5 + 5]
    block.fill_(rank + 1.0)
    dist.all_gather_into_tensor(joined, block)
    if joined.tolist() != [r + 1.0 for r in range(size) for _ in range(5)]:
        wrong.append("all_gather_into_tensor in place")
    dist.barrier()
    return wrong


def copy_between_shapes(rank, size):
    """Each rank passes six elements in another shape, which torch allows."""
    shape = ((6,), (2, 3), (3, 1, 2))[rank]
    given = [torch.arange(6.0) + 10 * r for r in range(size)]
    own = given[rank].clone().view(shape)

    def outs():
        return [torch.zeros(shape) for _ in range(size)]

    got = {}
    got["broadcast"] = [own.clone() if rank == 0 else torch.zeros(shape)]
    dist.broadcast(got["broadcast"][0], src=0)
    got["all_gather"] = outs()
    dist.all_gather(got["all_gather"], own)
    joined = torch.zeros(size, *shape)
    dist.all_gather_into_tensor(joined, own)
    got["all_gather_into_tensor"] = list(joined)
    got["gather"] = outs() if rank == 1 else []
    dist.gather(own, got["gather"] or None, dst=1)
    got["scatter"] = [torch.zeros(shape)]
    dist.scatter(
        got["scatter"][0], [t.clone() for t in given] if rank == 2 else None, 2
    )
    sent = dist.isend(own, (rank + 1) % size)
    got["recv"] = [torch.zeros(shape)]
    dist.recv(got["recv"][0], (rank - 1) % size)
    sent.wait()
    dist.barrier()  # the group still works
    wanted = {
        "broadcast": given[:1],
        "all_gather": given,
        "all_gather_into_tensor": given,
        "gather": given if rank == 1 else [],
        "scatter": [given[rank]],
        "recv": [given[rank - 1]],
    }
    return [
        name
        for name, tensors in got.items()
        if [t.flatten().tolist() for t in tensors] != [t.tolist() for t in wanted[name]]
    ]


def test_copies_need_equal_numbers_of_elements_and_no_equal_shapes():
    assert run_ranks(3, copy_between_shapes) == [[]] * 3


def copyable(rank, dtype, count):
    if dtype in DTYPES:
        return values(dtype, (count,), count, rank)
    kind = getattr(torch, dtype)
    return values("uint8", (count * kind.itemsize,), count, rank).view(kind)


def test_broadcast_and_all_gather_copy_every_dtype_bit_for_bit():
    for wrong in run_ranks(3, copy_everything):
        assert wrong == []


def call_asynchronously(rank, size):
    seen = {}
    # Many calls in progress at once, which may finish in any order.
    tensors = [torch.full((n * 997,), rank + 1.0) for n in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
    total = size * (size + 1) / 2
    seen["many"] = all(bool((t == total).all()) for t in tensors)
    seen["is_completed"] = all(w.is_completed() for w in works)
    number = getattr(aikido_torch._C.AikidoWork, "_get_sequence_number", None)
    numbers = [number(w) if number else n for n, w in enumerate(works)]  # torch >= 2.13
    seen["numbers"] = numbers == list(range(numbers[0], numbers[0] + 20))

    work = dist.all_reduce(torch.full((5,), rank + 1.0), async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    seen["future"] = doubled.wait().tolist() == [2 * total] * 5
    # The future of a complete work.
    work.wait()
    seen["late future"] = work.get_future().wait()[0].tolist() == [total] * 5
    seen["same future"] = torch.futures.wait_all([work.get_future()])[0][0][0] == total
    seen["result"] = work.result()[0].tolist() == [total] * 5

    # A dropped work is neither cancelled nor is its tensor freed.
    tensors = [torch.full((50_000,), rank + 1.0) for _ in range(10)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    for n in range(10):
        dist.all_reduce(torch.full((n,), 1.0), async_op=True).get_future().then(
            lambda future: future.value()
        )
        dist.broadcast(torch.full((30_000,), 1.0), src=n % size, async_op=True)
    dist.barrier()
    seen["dropped"] = all(bool((t == total).all()) for t in tensors)

    # A dropped send still arrives, whether smaller or larger than the eager limit.
    ring = [(rank + 1) % size, (rank - 1) % size]
    for count in (10, 100_000):
        dist.isend(torch.full((count,), float(rank)), ring[0])
        late(0.05)
        tensor = torch.empty(count)
        dist.recv(tensor, ring[1])
        seen[f"dropped send of {count}"] = bool((tensor == ring[1]).all())
    work = dist.barrier(async_op=True)
    work.wait()
    return seen


def test_works_can_be_waited_for_in_any_order_chained_and_dropped():
    for seen in run_ranks(3, call_asynchronously):
        assert [name for name, is_good in seen.items() if not is_good] == []
