# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every collective, dtype, op and count, compared with the result of one process."""

import functools
import itertools

import pytest
import torch
import torch.distributed as dist

from aikido_torch.testing import run_ranks
from harness.memory import COMPLEX as COMPLEX_NAMES
from harness.memory import DTYPES, same_bits
from harness.operations import fold, ops_of

SIZE = 3
# No element, less than one element per rank, an uneven share, several chunks.
COUNTS = (0, 2, 7, 70_001)
OPS = {getattr(torch, name): ops_of(name) for name in DTYPES}
COMPLEX = tuple(getattr(torch, name) for name in COMPLEX_NAMES)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def data(rank, dtype, count, salt=0):
    """Small integers, so that every reduction of them is exact in every dtype."""
    values = (torch.arange(count) + rank + salt) % 4 + rank
    if dtype is torch.bool:
        return values % 2 == 0
    if dtype in COMPLEX:
        return torch.complex(values.double(), 1.0 - values.double()).to(dtype)
    return values.to(dtype)


class Copies:
    """Collectives that move data: (found, expected, work) of one call each."""

    def __init__(self, rank, size, dtype, count, is_async):
        self.rank, self.size, self.options = rank, size, {"async_op": is_async}
        self.make = functools.partial(data, dtype=dtype, count=count)
        self.mine = self.make(rank)
        self.everybody = [self.make(r) for r in range(size)]
        self.root = count % size

    def empty(self, parts):
        return [torch.empty_like(part) for part in parts]

    def between(self, a, b):
        """The data that rank a sends to rank b."""
        return self.make(a, salt=b)

    def broadcast(self):
        tensor = self.mine.clone()
        work = dist.broadcast(tensor, src=self.root, **self.options)
        return [tensor], [self.everybody[self.root]], work

    def all_gather(self):
        outputs = self.empty(self.everybody)
        work = dist.all_gather(outputs, self.mine, **self.options)
        return outputs, self.everybody, work

    def all_gather_into_tensor(self):
        output = torch.empty_like(joined(self.everybody))
        work = dist.all_gather_into_tensor(output, self.mine, **self.options)
        return [output], [joined(self.everybody)], work

    def all_gather_into_stacked_tensor(self):
        output = torch.empty_like(joined(self.everybody)).view(
            self.size, self.mine.numel()
        )
        work = dist.all_gather_into_tensor(output, self.mine, **self.options)
        return [output.view(-1)], [joined(self.everybody)], work

    def all_gather_coalesced(self):
        inputs = [self.mine, self.make(self.rank, salt=5)]
        wanted = [[self.make(r), self.make(r, salt=5)] for r in range(self.size)]
        outputs = [self.empty(parts) for parts in wanted]
        work = dist.all_gather_coalesced(outputs, inputs, **self.options)
        return [*itertools.chain(*outputs)], [*itertools.chain(*wanted)], work

    def gather(self):
        is_root = self.rank == self.root
        outputs = self.empty(self.everybody) if is_root else None
        work = dist.gather(self.mine, outputs, dst=self.root, **self.options)
        return outputs or [], self.everybody if is_root else [], work

    def scatter(self):
        is_root = self.rank == self.root
        inputs = [self.between(self.root, r) for r in range(self.size)]
        output = torch.empty_like(self.mine)
        work = dist.scatter(
            output, inputs if is_root else None, src=self.root, **self.options
        )
        return [output], [self.between(self.root, self.rank)], work

    def all_to_all(self):
        inputs = [self.between(self.rank, r) for r in range(self.size)]
        wanted = [self.between(r, self.rank) for r in range(self.size)]
        outputs = self.empty(wanted)
        work = dist.all_to_all(outputs, inputs, **self.options)
        return outputs, wanted, work

    def all_to_all_single(self):
        inputs = joined([self.between(self.rank, r) for r in range(self.size)])
        wanted = joined([self.between(r, self.rank) for r in range(self.size)])
        output = torch.empty_like(wanted)
        work = dist.all_to_all_single(output, inputs, **self.options)
        return [output], [wanted], work


def joined(parts):
    # torch cannot concatenate float8.
    return torch.cat([p.view(torch.uint8) for p in parts]).view(parts[0].dtype)


COPIES = [name for name in vars(Copies) if not name.startswith("_")]
COPIES = [name for name in COPIES if name not in ("empty", "between")]


def copy_all(rank, size, name):
    wrong = []
    for dtype in (*OPS, *FLOAT8):
        for count in COUNTS:
            for is_async in (False, True):
                copies = Copies(rank, size, dtype, count, is_async)
                found, wanted, work = getattr(copies, name)()
                case = f"{dtype} {count} {'async' if is_async else ''}"
                if is_async:
                    work.wait()
                elif work is not None:
                    wrong.append(f"{case}: a work although not asked for")
                if len(found) != len(wanted) or not all(map(same_bits, found, wanted)):
                    wrong.append(case)
    return wrong


@pytest.mark.parametrize("size", [1, SIZE])
@pytest.mark.parametrize("name", COPIES)
def test_data_arrives_bit_for_bit(name, size):
    assert run_ranks(size, copy_all, name) == [[]] * size


class Folds:
    """Collectives that reduce: (found, expected, work) of one call each."""

    def __init__(self, rank, size, dtype, count, op, is_async):
        self.rank, self.size, self.op = rank, size, op
        self.options = {"op": getattr(dist.ReduceOp, op), "async_op": is_async}
        self.make = functools.partial(data, dtype=dtype, count=count)
        self.mine = self.make(rank)
        self.root = count % size

    def total(self, salt=0):
        return fold(self.op, [self.make(r, salt=salt) for r in range(self.size)])

    def all_reduce(self):
        tensor = self.mine.clone()
        return [tensor], [self.total()], dist.all_reduce(tensor, **self.options)

    def reduce(self):
        tensor = self.mine.clone()
        work = dist.reduce(tensor, dst=self.root, **self.options)
        is_root = self.rank == self.root
        return [tensor] if is_root else [], [self.total()] if is_root else [], work

    def reduce_scatter(self):
        inputs = [self.make(self.rank, salt=r) for r in range(self.size)]
        output = torch.empty_like(self.mine)
        work = dist.reduce_scatter(output, inputs, **self.options)
        return [output], [self.total(salt=self.rank)], work

    def reduce_scatter_tensor(self):
        inputs = joined([self.make(self.rank, salt=r) for r in range(self.size)])
        output = torch.empty_like(self.mine)
        work = dist.reduce_scatter_tensor(output, inputs, **self.options)
        return [output], [self.total(salt=self.rank)], work

    def all_reduce_coalesced(self):
        tensors = [self.mine.clone(), self.make(self.rank, salt=2)]
        work = dist.all_reduce_coalesced(tensors, **self.options)
        return tensors, [self.total(), self.total(salt=2)], work


FOLDING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor",
           "all_reduce_coalesced")  # fmt: skip


def fold_all(rank, size, name, dtypes, counts=COUNTS):
    wrong = []
    for dtype in dtypes:
        for op in OPS[dtype]:
            for count in counts:
                is_async = count % 2 == 1
                folds = Folds(rank, size, dtype, count, op, is_async)
                case = f"{dtype} {op} {count}"
                try:
                    found, wanted, work = getattr(folds, name)()
                    if is_async:
                        work.wait()
                    elif work is not None:
                        wrong.append(f"{case}: a work although not asked for")
                except (RuntimeError, ValueError) as error:
                    wrong.append(f"{case}: {str(error).splitlines()[0]}")
                    continue
                if len(found) != len(wanted) or not all(map(same_bits, found, wanted)):
                    wrong.append(case)
    return wrong


@pytest.mark.parametrize("size", [1, SIZE])
@pytest.mark.parametrize("name", FOLDING)
def test_every_dtype_is_folded_by_every_op(name, size):
    dtypes = [dtype for dtype in OPS if dtype not in COMPLEX]
    assert run_ranks(size, fold_all, name, dtypes) == [[]] * size


@pytest.mark.parametrize("name", FOLDING)
def test_complex_numbers_are_summed_and_averaged(name):
    assert run_ranks(SIZE, fold_all, name, COMPLEX) == [[]] * SIZE


def all_to_all_with_splits(rank, size):
    wrong = []
    for base in (0, 3, 40_000):
        counts = [
            [base * (a + 2 * b) % 7 + base for b in range(size)] for a in range(size)
        ]
        counts[0][1] = 0
        inputs = [data(rank, torch.float32, n, r) for r, n in enumerate(counts[rank])]
        wanted = [data(r, torch.float32, counts[r][rank], rank) for r in range(size)]
        output = torch.empty(sum(w.numel() for w in wanted))
        dist.all_to_all_single(
            output,
            torch.cat(inputs),
            output_split_sizes=[w.numel() for w in wanted],
            input_split_sizes=[i.numel() for i in inputs],
        )
        if not torch.equal(output, torch.cat(wanted)):
            wrong.append(f"single {base}")
        rows = torch.cat(wanted).view(-1, 1).expand(-1, 2).contiguous()
        output = torch.empty_like(rows)
        dist.all_to_all_single(
            output,
            torch.cat(inputs).view(-1, 1).expand(-1, 2).contiguous(),
            output_split_sizes=[w.numel() for w in wanted],
            input_split_sizes=[i.numel() for i in inputs],
        )
        if not torch.equal(output, rows):
            wrong.append(f"rows {base}")
    return wrong


def test_all_to_all_single_takes_a_size_for_each_pair():
    assert run_ranks(SIZE, all_to_all_with_splits) == [[]] * SIZE


def all_to_all_lists(rank, size):
    counts = [[(a + 2 * b) % 4 * 9_000 for b in range(size)] for a in range(size)]
    inputs = [data(rank, torch.float32, n, r) for r, n in enumerate(counts[rank])]
    wanted = [data(r, torch.float32, counts[r][rank], rank) for r in range(size)]
    outputs = [torch.empty_like(w) for w in wanted]
    dist.all_to_all(outputs, inputs)
    return all(map(torch.equal, outputs, wanted))


def test_all_to_all_of_lists_takes_a_size_for_each_pair():
    assert run_ranks(SIZE, all_to_all_lists) == [True] * SIZE


def gather_into_one(rank, size):
    mine = data(rank, torch.float32, 7)
    everybody = torch.cat([data(r, torch.float32, 7) for r in range(size)])
    try:
        output = torch.empty(7 * size) if rank == 1 else None
        dist.gather_single(mine, output, dst=1)
    except RuntimeError as error:
        return str(error)
    return rank != 1 or torch.equal(output, everybody)


@pytest.mark.skipif(not hasattr(dist, "gather_single"), reason="not in this torch")
def test_gather_into_one_tensor_works_or_says_that_it_does_not():
    for answer in run_ranks(SIZE, gather_into_one):
        assert answer is True or "does not support gather_single" in answer


def coalesce(rank, size):
    """Pairs of found and expected results of the three calls that a manager
    combines.
    """
    cpu = torch.device("cpu")
    results = []
    for is_async in (False, True):
        tensors = [data(rank, torch.float32, i + 1) for i in range(3)]
        with dist._coalescing_manager(device=cpu, async_ops=is_async) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        results.append(len(manager.works) == is_async)
        manager.wait()
        for i, tensor in enumerate(tensors):
            total = fold("SUM", [data(r, torch.float32, i + 1) for r in range(size)])
            results.append(torch.equal(tensor, total))

        inputs = [data(rank, torch.float32, i + 1) for i in range(3)]
        outputs = [torch.empty((i + 1) * size) for i in range(3)]
        with dist._coalescing_manager(device=cpu, async_ops=is_async) as manager:
            for output, tensor in zip(outputs, inputs, strict=True):
                dist.all_gather_into_tensor(output, tensor)
        results.append(len(manager.works) == is_async)
        manager.wait()
        for i, output in enumerate(outputs):
            parts = [data(r, torch.float32, i + 1) for r in range(size)]
            results.append(torch.equal(output, torch.cat(parts)))

        inputs = [data(rank, torch.float32, (i + 1) * size) for i in range(3)]
        outputs = [torch.empty(i + 1) for i in range(3)]
        with dist._coalescing_manager(device=cpu, async_ops=is_async) as manager:
            for output, tensor in zip(outputs, inputs, strict=True):
                dist.reduce_scatter_tensor(output, tensor)
        results.append(len(manager.works) == is_async)
        manager.wait()
        for i, output in enumerate(outputs):
            parts = [data(r, torch.float32, (i + 1) * size) for r in range(size)]
            results.append(torch.equal(output, fold("SUM", parts).chunk(size)[rank]))
    return results


def test_a_coalescing_manager_gives_one_work_for_what_it_joins():
    assert run_ranks(SIZE, coalesce) == [[True] * 24] * SIZE


def reduce_sparse(rank, size):
    indices = torch.tensor([[rank, 5], [0, 1]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0 + rank]), (6, 2))
    wanted = torch.zeros(6, 2)
    for r in range(size):
        wanted[r, 0] += 1
        wanted[5, 1] += 2 + r
    dist.all_reduce(tensor)
    return torch.equal(tensor.to_dense(), wanted)


def test_sparse_tensors_are_summed():
    assert run_ranks(SIZE, reduce_sparse) == [True] * SIZE


def refuse(rank, size):
    """Error of each bad call, raised before anything is sent."""
    four, wide = torch.ones(4), torch.empty(4 * size, dtype=torch.float64)
    half = torch.ones(4 * size, dtype=torch.float16)
    skewed = torch.ones(size, size).t()
    calls = {
        "all_gather": lambda: dist.all_gather([torch.ones(4).double()] * size, four),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, four),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(four, wide),
        "all_to_all_single": lambda: dist.all_to_all_single(wide, half),
        "all_to_all": lambda: dist.all_to_all([four] * size, [four.double()] * size),
        "gather": lambda: dist.gather(
            four, [four.double()] * size if rank == 0 else None, dst=0
        ),
        "reduce_scatter": lambda: dist.reduce_scatter(four, [four.double()] * size),
        "a size": lambda: dist.all_gather_into_tensor(torch.empty(5), four),
        "no multiple": lambda: dist.reduce_scatter_tensor(torch.empty(5), four),
        "uneven": lambda: dist.all_to_all_single(torch.ones(5), torch.ones(5)),
        "splits": lambda: dist.all_to_all_single(
            torch.ones(6), torch.ones(6), [2] * size, [3] * size
        ),
        "skewed": lambda: dist.all_to_all_single(torch.empty(size, size), skewed),
    }
    seen = {}
    for name, call in calls.items():
        if name == "gather" and rank != 0:
            seen[name] = "ValueError only where the outputs are"
            continue
        try:
            call()
            seen[name] = "nothing"
        except (RuntimeError, TypeError, ValueError) as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            seen[name] = f"{' '.join(kinds)}: {error}"
    # Nothing was sent, so the next call works.
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    seen["after"] = tensor.tolist() == [size] * 2
    return seen


def test_bad_arguments_are_refused_before_anything_is_sent():
    for seen in run_ranks(SIZE, refuse, group_timeout=10):
        assert seen.pop("after")
        assert [name for name, text in seen.items() if text == "nothing"] == []
        assert "ValueError" in seen["skewed"]
        assert "Tensors must be contiguous" in seen["skewed"]


def use_devices(rank, size):
    dist.barrier(device_ids=[rank])
    dist.barrier(device_ids=[rank], async_op=True).wait()
    dist.barrier()
    return True


def test_a_barrier_on_the_cpu_takes_device_ids():
    assert run_ranks(2, use_devices) == [True] * 2


def multiply_complex(rank, size):
    try:
        dist.all_reduce(torch.ones(3, dtype=torch.complex64), op=dist.ReduceOp.MAX)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "nothing"


def test_complex_numbers_have_no_largest():
    for text in run_ranks(2, multiply_complex):
        assert "complex" in text.lower()


def in_and_out(rank, size):
    """Outputs that are parts of one tensor, and an input that is also the output."""
    whole = torch.zeros(4 * size)
    parts = list(whole.chunk(size))
    dist.all_gather(parts, data(rank, torch.float32, 4))
    wanted = torch.cat([data(r, torch.float32, 4) for r in range(size)])
    seen = [torch.equal(whole, wanted)]
    parts = list(torch.zeros(4 * size).chunk(size))
    parts[rank].copy_(data(rank, torch.float32, 4))
    dist.all_gather(parts, parts[rank])
    seen.append(torch.equal(torch.cat(parts), wanted))
    return seen


def test_outputs_may_be_views_of_one_tensor():
    assert run_ranks(SIZE, in_and_out) == [[True] * 2] * SIZE
