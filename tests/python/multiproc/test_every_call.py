# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every collective but all_reduce, broadcast and all_gather by its definition."""

import itertools
import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from aikido_torch.errors import AikidoError
from aikido_torch.testing import late, run_ranks

# Empty, small, and larger than the eager limit.
COUNTS = (0, 1, 7, 40_000)
DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.bool)


def data(giver, taker, count, dtype):
    """Data that rank `giver` sends to rank `taker`."""
    seed = torch.Generator().manual_seed(1000 * giver + 10 * taker + count)
    return torch.randint(
        0, 2 if dtype is torch.bool else 9, (count,), generator=seed
    ).to(dtype)


def total(parts):
    """The sum as a fold in rank order; of bool: or."""
    if parts[0].dtype is torch.bool:
        return torch.stack(parts).any(dim=0)
    if parts[0].dtype is torch.bfloat16:  # summed in float32 with one rounding
        return torch.stack([p.float() for p in parts]).sum(dim=0).bfloat16()
    return torch.stack(parts).sum(dim=0)


class Checked:
    def __init__(self):
        self.wrong = []

    def equal(self, got, expected, *what):
        if got.dtype != expected.dtype or not torch.equal(got, expected):
            self.wrong.append(what)


def reduce_everything(rank, size):
    checked = Checked()
    for dtype in DTYPES:
        for count in COUNTS:
            what = (dtype, count)
            mine = [data(rank, r, count, dtype) for r in range(size)]
            sums = [
                total([data(g, t, count, dtype) for g in range(size)])
                for t in range(size)
            ]
            for root in range(size):
                tensor = mine[root].clone()
                dist.reduce(tensor, dst=root)
                expected = sums[root] if rank == root else mine[root]
                checked.equal(tensor, expected, "reduce", root, *what)
            out = torch.empty(count, dtype=dtype)
            dist.reduce_scatter(out, [m.clone() for m in mine])
            checked.equal(out, sums[rank], "reduce_scatter", *what)
            joined = torch.cat(mine)
            dist.reduce_scatter_tensor(out, joined)
            checked.equal(out, sums[rank], "reduce_scatter_tensor", *what)
            # The output may be this rank's part of the input.
            own = joined[rank * count : rank * count + count]
            dist.reduce_scatter_tensor(own, joined)
            checked.equal(own, sums[rank], "reduce_scatter_tensor in place", *what)
    # Blocks of different sizes.
    blocks = [
        data(rank, r, 3 * r + 20_000 * (r == 1), torch.float32) for r in range(size)
    ]
    expected = total(
        [data(g, rank, blocks[rank].numel(), torch.float32) for g in range(size)]
    )
    out = torch.empty_like(blocks[rank])
    dist.reduce_scatter(out, blocks)
    checked.equal(out, expected, "reduce_scatter, uneven")
    mean = torch.full((4,), float(rank))
    dist.reduce(mean, dst=1, op=dist.ReduceOp.AVG)
    if rank == 1:
        checked.equal(mean, torch.full((4,), (size - 1) / 2), "reduce, mean")
    complexes = torch.full((3,), complex(rank, 1))
    dist.reduce(complexes, dst=0)
    if rank == 0:
        expected = torch.full((3,), complex(size * (size - 1) / 2, size))
        checked.equal(complexes, expected, "reduce, complex")
    return checked.wrong


def exchange_everything(rank, size):
    checked = Checked()
    for dtype in (*DTYPES, torch.complex64):
        for count in COUNTS:
            what = (dtype, count)
            mine = [data(rank, r, count, dtype) for r in range(size)]
            for root in range(size):
                outs = [torch.empty(count, dtype=dtype) for _ in range(size)]
                dist.gather(mine[0], outs if rank == root else None, dst=root)
                for giver in range(size if rank == root else 0):
                    expected = data(giver, 0, count, dtype)
                    checked.equal(outs[giver], expected, "gather", *what)
                out = torch.empty(count, dtype=dtype)
                dist.scatter(out, mine if rank == root else None, src=root)
                checked.equal(out, data(root, rank, count, dtype), "scatter", *what)
            outs = [torch.empty(count, dtype=dtype) for _ in range(size)]
            dist.all_to_all(outs, mine)
            theirs = [data(giver, rank, count, dtype) for giver in range(size)]
            for giver in range(size):
                checked.equal(outs[giver], theirs[giver], "all_to_all", *what)
            out = torch.empty(size * count, dtype=dtype)
            dist.all_to_all_single(out, torch.cat(mine))
            checked.equal(out, torch.cat(theirs), "all_to_all_single", *what)
    return checked.wrong


def exchange_unevenly(rank, size):
    checked = Checked()
    for large in (1, 30_000):
        counts = [[(3 * g + t) % 4 * large for t in range(size)] for g in range(size)]
        mine = [data(rank, t, counts[rank][t], torch.float32) for t in range(size)]
        theirs = [data(g, rank, counts[g][rank], torch.float32) for g in range(size)]
        outs = [torch.empty_like(t) for t in theirs]
        dist.all_to_all(outs, mine)
        checked.equal(torch.cat(outs), torch.cat(theirs), "all_to_all", large)
        # Rows of two elements.
        out = torch.empty(sum(t.numel() for t in theirs), 2)
        dist.all_to_all_single(
            out,
            torch.cat(mine).unsqueeze(1).repeat(1, 2),
            output_split_sizes=[t.numel() for t in theirs],
            input_split_sizes=[t.numel() for t in mine],
        )
        expected = torch.cat(theirs).unsqueeze(1).repeat(1, 2)
        checked.equal(out, expected, "all_to_all_single", large)
    return checked.wrong


def coalesce(rank, size):
    checked = Checked()
    tensors = [torch.full((n,), rank + 1.0) for n in (3, 0, 20_000)]
    sums = [torch.full_like(t, size * (size + 1) / 2) for t in tensors]
    with _coalescing_manager(async_ops=True) as batch:
        for tensor in tensors:
            dist.all_reduce(tensor)
    batch.wait()
    for tensor, expected in zip(tensors, sums, strict=True):
        checked.equal(tensor, expected, "all_reduce")
    inputs = [torch.full((2,), float(rank)), torch.full((9_000,), 2.0 * rank)]
    outputs = [torch.empty(t.numel() * size) for t in inputs]
    with _coalescing_manager():
        for out, own in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(out, own)
    for i, own in enumerate(inputs):
        ranks = torch.arange(float(size)).repeat_interleave(own.numel()) * (i + 1)
        checked.equal(outputs[i], ranks, "all_gather_into_tensor")
    outs = [torch.empty(2), torch.empty(5)]
    with _coalescing_manager():
        for out in outs:
            dist.reduce_scatter_tensor(
                out, torch.full((out.numel() * size,), rank + 1.0)
            )
    for out in outs:
        expected = torch.full_like(out, size * (size + 1) / 2)
        checked.equal(out, expected, "reduce_scatter_tensor")
    lists = [[torch.empty(2), torch.empty(9_000)] for _ in range(size)]
    dist.all_gather_coalesced(lists, inputs)
    for giver in range(size):
        checked.equal(lists[giver][0], torch.full((2,), float(giver)), "lists")
        checked.equal(lists[giver][1], torch.full((9_000,), 2.0 * giver), "lists")
    # Calls of any kind are one work.
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as batch:
        message = torch.full((3,), float(rank))
        dist.isend(message, (rank + 1) % size)
        got = torch.empty(3)
        dist.irecv(got, (rank - 1) % size)
    batch.wait()
    checked.equal(got, torch.full((3,), float((rank - 1) % size)), "messages")
    return checked.wrong, len(batch.works)


def broadcast_and_drop(tensor):
    """Leaves the batch open, as torch's manager does on an exception."""
    dist.group.WORLD._start_coalescing(torch.device("cpu"))
    dist.broadcast(tensor, 2, async_op=True)


def wait_amid_coalescing(rank, size):
    checked = Checked()
    tensors = [torch.full((3,), float(rank)) for _ in range(5)]
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as batch:
        dist.broadcast(tensors[0], 2)  # waits at once
        checked.equal(tensors[0], torch.full((3,), 2.0), "waited")
        if rank == 2:
            late(0.1)
        dist.broadcast(tensors[1], 2, async_op=True)
    batch.wait()
    checked.equal(tensors[1], torch.full((3,), 2.0), "behind the wait")
    broadcast_and_drop(tensors[2])
    broadcast_and_drop(tensors[3])
    dist.broadcast(tensors[4], 2)
    # Threads end and their ids are reused.
    for i in (2, 3):
        thread = threading.Thread(target=broadcast_and_drop, args=(tensors[i],))
        thread.start()
        thread.join()
    dist.barrier()
    for tensor in tensors[2:]:
        checked.equal(tensor, torch.full((3,), 2.0), "after what was left open")
    return checked.wrong


def share_until_written(rank, size):
    """Copy-on-write tensors."""
    checked = Checked()
    for _ in range(5):
        source = torch.full((300_000,), rank + 1.0)
        tensor = torch._lazy_clone(source)
        reduced = torch._lazy_clone(source)
        if rank == 1:
            late(0.02)
        works = [
            dist.all_reduce(tensor, async_op=True),
            dist.reduce(reduced, 0, async_op=True),
        ]
        checked.equal(source, torch.full_like(source, rank + 1.0), "source")
        del source  # releases its memory
        for work in works:
            work.wait()
        total = torch.full((300_000,), size * (size + 1) / 2)
        checked.equal(tensor, total, "all_reduce")
        if rank == 0:
            checked.equal(reduced, total, "reduce")
    rows = torch.zeros(size, 50_000)
    rows[rank] = rank
    mine = torch._lazy_clone(rows)
    dist.all_gather_into_tensor(mine, mine[rank])
    expected = torch.arange(float(size)).unsqueeze(1).expand(size, 50_000)
    checked.equal(mine, expected, "all_gather_into_tensor")
    checked.equal(rows.sum(), torch.tensor(rank * 50_000.0), "all_gather source")
    for call in ("all_to_all", "reduce_scatter"):
        source = torch.full((size, 200_000), float(rank))
        mine = torch._lazy_clone(source)
        if rank == 1:
            late(0.02)
        if call == "all_to_all":
            work = dist.all_to_all(list(mine), list(mine), async_op=True)
        else:
            work = dist.reduce_scatter(mine[rank], list(mine), async_op=True)
        source.fill_(-1)
        work.wait()
        expected = torch.arange(float(size)).unsqueeze(1).expand(size, 200_000)
        if call == "all_to_all":
            checked.equal(mine, expected, call)
        else:
            checked.equal(mine[rank], expected.sum(0), call)
    return checked.wrong


def read_where_it_writes(rank, size):
    """Inputs that overlap the outputs, below and above the eager limit."""
    checked = Checked()
    ranks = torch.arange(float(size))
    total = float(size * (size - 1) / 2)
    for count, giver in itertools.product((1_000, 200_000), range(size)):
        what = (count, giver)
        each = ranks.repeat_interleave(count)

        def mine(count=count, giver=giver):
            if rank == giver:
                late(0.01)  # so that its data is read last
            return torch.full((size * count,), float(rank))

        both = mine()
        dist.all_gather_into_tensor(both, both[:count])
        checked.equal(both, each, "all_gather_into_tensor", *what)
        both = mine()
        dist.all_gather(list(both.chunk(size)), both[count // 2 : count // 2 + count])
        checked.equal(both, each, "all_gather", *what)
        both = mine()
        dist.reduce_scatter_tensor(both[:count], both)
        checked.equal(both[:count], torch.full((count,), total), "reduce", *what)
        both = mine()
        dist.all_to_all_single(both, both)
        checked.equal(both, each, "all_to_all_single", *what)
        both = mine()
        dist.all_to_all(list(both.chunk(size))[::-1], list(both.chunk(size)))
        checked.equal(both, each.flip(0), "all_to_all", *what)
        both = mine() + each
        blocks = list(both.chunk(size)) if rank == giver else None
        dist.scatter(both[count // 2 : count // 2 + count], blocks, giver)
        expected = torch.full((count,), float(rank + giver))
        got = both[count // 2 : count // 2 + count]
        checked.equal(got, expected, "scatter", *what)
    return checked.wrong


def reduce_sparse(rank, size):
    checked = Checked()
    for entries in (0, 1, 5_000):
        seed = torch.Generator().manual_seed(rank)
        # Some indices occur several times, some on one rank only, and none on rank 0.
        count = entries * rank
        indices = torch.randint(0, 3_000, (1, count), generator=seed)
        values = torch.randint(0, 9, (count, 2), generator=seed).float()
        sparse = torch.sparse_coo_tensor(indices, values, (3_000, 2))
        dense = sparse.to_dense()
        dist.all_reduce(sparse)
        dist.all_reduce(dense)
        checked.equal(sparse.to_dense(), dense, "sparse", entries)
    # More rows than fit in any memory.
    for shape in ((2**62,), (2**55, 64), (2**40, 2**20)):
        large = torch.sparse_coo_tensor([[5], [rank]][: len(shape)], [1.0], shape)
        dist.all_reduce(large)
        checked.equal(large.sum(), torch.tensor(float(size)), "sparse", *shape)
    return checked.wrong


def make_no_tensors(rank, size):
    """Torch operators used by the calls; a view costs more than a small message."""
    mine, whole, other_whole = (torch.zeros(3 * n) for n in (1, size, size))
    blocks = list(whole.chunk(size))
    others = [torch.zeros(3) for _ in range(size)]
    root = rank == 0
    counts = [3] * size
    calls = (
        lambda: dist.all_reduce(mine),
        lambda: dist.broadcast(mine, 0),
        lambda: dist.reduce(mine, 0),
        lambda: dist.all_gather(others, mine),
        lambda: dist.all_gather_into_tensor(whole, mine),
        lambda: dist.gather(mine, others if root else None),
        lambda: dist.scatter(mine, blocks if root else None),
        lambda: dist.reduce_scatter(mine, others),
        lambda: dist.reduce_scatter_tensor(mine, whole),
        lambda: dist.all_to_all(others, blocks),
        lambda: dist.all_to_all_single(whole, other_whole, counts, counts),
        lambda: dist.all_to_all_single(whole, other_whole),
    )
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        for call in calls:
            call()
    names = {event.name for event in profile.events()}
    assert "aikido:all_to_all_single" in names
    return sorted(name for name in names if name.startswith("aten::"))


def test_calls_make_no_tensors():
    assert run_ranks(2, make_no_tensors) == [[], []]


@pytest.mark.parametrize(
    "calls",
    [
        reduce_everything,
        exchange_everything,
        exchange_unevenly,
        reduce_sparse,
        share_until_written,
        read_where_it_writes,
        wait_amid_coalescing,
    ],
)
def test_every_call_matches_its_definition(calls):
    for wrong in run_ranks(3, calls):
        assert wrong == []


def test_coalesced_calls_are_one_work():
    for wrong, num_works in run_ranks(3, coalesce):
        assert wrong == []
        assert num_works == 1


def drop_sparse(rank, size):
    wrong = 0
    for _ in range(40):
        entries = torch.arange(20_000).unsqueeze(0)
        sparse = torch.sparse_coo_tensor(entries, torch.full((20_000, 8), rank + 1.0))
        dist.all_reduce(sparse, async_op=True)
        dist.barrier()
        dense = sparse.to_dense()
        wrong += not bool((dense == size * (size + 1) / 2).all())
    return wrong


def test_a_barrier_completes_dropped_sparse_sums_too():
    assert run_ranks(3, drop_sparse) == [0, 0, 0]


def refused(call):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


def fail_in_three_ways(rank, size):
    fields = []
    ones = torch.ones(3)
    for call in (
        lambda: dist.reduce(ones, 0, op=dist.ReduceOp.BAND),  # refused on this rank
        lambda: dist.all_reduce(torch.ones(3 + rank)),  # differs between the ranks
        lambda: dist.recv(ones, 1),
    ):
        if rank == 1 and len(fields) == 2:
            break  # leaves while rank 0 waits for its message
        try:
            call()
        except AikidoError as error:
            fields.append((error.rank, error.operation, error.sequence_number))
    return fields


def test_errors_carry_rank_operation_and_number():
    first, second = run_ranks(2, fail_in_three_ways)
    assert first == [
        (0, "reduce", 1),
        (None, "all_reduce", 2),
        (1, "recv", None),
    ]
    assert second == [(1, "reduce", 1), (None, "all_reduce", 2)]


def ask_for_too_much(rank, size):
    ones = torch.ones(4)
    halves = torch.ones(4, dtype=torch.float16)
    texts = {
        "op": refused(lambda: dist.reduce(ones, 0, op=dist.ReduceOp.BAND)),
        "rank": refused(lambda: dist.reduce(ones, 7)),
        "dtype": refused(lambda: dist.reduce_scatter(ones, [ones, halves, ones])),
        "count": refused(lambda: dist.all_to_all([ones] * size, [ones] * 2)),
        "size": refused(lambda: dist.reduce_scatter_tensor(ones, torch.ones(11))),
        "splits": refused(
            lambda: dist.all_to_all_single(ones, ones, input_split_sizes=[1, 1, 1])
        ),
        "even": refused(lambda: dist.all_to_all_single(ones, ones)),
        "strided": refused(
            lambda: dist.all_to_all_single(torch.ones(3, 6), torch.ones(6, 3).t())
        ),
        "sparse": refused(
            lambda: dist.all_reduce(ones.to_sparse(), op=dist.ReduceOp.MAX)
        ),
    }
    dist.barrier()  # nothing was sent before
    return texts


def test_bad_arguments_are_named_with_both_values():
    for rank, texts in enumerate(run_ranks(3, ask_for_too_much)):
        here = f"on rank {rank}: "
        assert here + "argument op is band, which is not defined" in texts["op"]
        assert "7" in texts["rank"]
        assert "different dtypes" in texts["dtype"]  # error text of torch
        assert "input_tensor_list has 2 tensors; 3 are needed" in texts["count"]
        assert "input has shape [11] (11 elements) but 3 times" in texts["size"]
        assert "input_split_sizes adds up to 3 but" in texts["splits"]
        assert "cannot be split evenly among 3 ranks" in texts["even"]
        assert "Tensors must be contiguous" in texts["strided"]
        assert "argument op is max for a sparse tensor" in texts["sparse"]


def disagree(rank, size):
    texts = []
    tensors = [torch.ones(2, 3), torch.ones(3, 2), torch.ones(2, 3)]
    texts.append(refused(lambda: dist.all_reduce(tensors[rank])))
    # Each rank names another root.
    texts.append(refused(lambda: dist.broadcast(torch.ones(3), src=(rank + 1) % size)))
    counts = [[0, 5, 5], [4, 0, 5], [5, 5, 0]]  # rank 0 expects 5 elements from rank 1
    texts.append(
        refused(
            lambda: dist.all_to_all(
                [torch.empty(5 * (r != rank)) for r in range(size)],
                [torch.empty(n) for n in counts[rank]],
            )
        )
    )
    # The sender of a small block may return before the mismatch is known. Then the
    # group ends, and the next call reports the mismatch.
    texts.append(refused(dist.barrier))
    return texts


def test_ranks_that_disagree_all_get_an_error():
    answers = run_ranks(3, disagree)
    for shape, root, block, then in answers:
        assert "calls all_reduce(sum, float32[2, 3])" in shape
        assert "calls all_reduce(sum, float32[3, 2])" in shape
        assert root.count("calls broadcast(src ") == 2
        assert "rank 1 sends 16 bytes where rank 0 expects 20" in (block or then)
