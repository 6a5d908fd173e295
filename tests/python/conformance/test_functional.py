# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Functional collectives, called individually and compiled."""

import pytest
import torch
import torch._inductor.compile_fx
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._C._distributed_c10d import _get_work_registry_size

from aikido_torch.testing import run_ranks
from conformance.versions import since

SIZE = 3
COMPILERS = (
    None,
    pytest.param("eager", marks=since(2, 13)),
    pytest.param("aot_eager", marks=since(2, 13)),
)


def part(rank):
    return torch.arange(12.0).view(6, 2) + 100 * rank


def pipeline(x):
    """Every functional collective once, with arithmetic in between."""
    group = list(range(SIZE))
    total = functional.all_reduce(x * 2, "sum", group) + 1
    largest = functional.all_reduce(x, "max", group)
    mean = functional.all_reduce(x, "avg", group)
    gathered = functional.all_gather_tensor(x + 1, 0, group)
    columns = functional.all_gather_tensor(x, 1, group)
    shard = functional.reduce_scatter_tensor(gathered, "sum", 0, group)
    swapped = functional.all_to_all_single(x.contiguous(), None, None, group)
    root = functional.broadcast(x, 1, group)
    several = functional.all_reduce_coalesced([x, x * 3], "sum", group)
    both = functional.all_gather_into_tensor_coalesced([x, x * 3], group)
    pieces = functional.reduce_scatter_tensor_coalesced(
        [x, x * 3], "sum", [0, 0], group
    )
    return [
        total, largest, mean, gathered, columns, shard, swapped, root,
        *several, *both, *pieces,
    ]  # fmt: skip


def wanted_of(rank):
    parts = [part(r) for r in range(SIZE)]
    total, mine = sum(parts), parts[rank]
    rows = slice(2 * rank, 2 * rank + 2)
    return [
        total * 2 + 1,
        parts[-1],
        total / SIZE,
        torch.cat(parts) + 1,
        torch.cat(parts, dim=1),
        SIZE * (mine + 1),
        torch.cat([p[rows] for p in parts]),
        parts[1],
        total,
        total * 3,
        torch.cat(parts),
        torch.cat(parts) * 3,
        total[rows],
        total[rows] * 3,
    ]


def call(rank, size, compiler):
    program = pipeline
    if compiler is not None:
        program = torch.compile(pipeline, backend=compiler, fullgraph=True)
    for _ in range(3):
        found = [t + 0 for t in program(part(rank))]
    wanted = wanted_of(rank)
    return [i for i, (f, w) in enumerate(zip(found, wanted, strict=True))
            if not torch.allclose(f, w)], _get_work_registry_size()  # fmt: skip


@pytest.mark.parametrize("compiler", COMPILERS)
def test_functional_collectives_give_what_one_process_computes(compiler):
    assert run_ranks(SIZE, call, compiler) == [([], 0)] * SIZE


def compile_to_machine_code(rank, size):
    def program(x):
        total = functional.all_reduce(x * 2, "sum", list(range(size)))
        return functional.all_gather_tensor(total + 1, 0, list(range(size)))

    found = torch.compile(program, fullgraph=True)(part(rank))
    total = sum(part(r) for r in range(size))
    return torch.allclose(found, torch.cat([total * 2 + 1] * size))


@since(2, 13)
def test_functional_collectives_between_kernels_that_inductor_compiles():
    # g++ takes seconds for each kernel on a fresh machine.
    assert run_ranks(2, compile_to_machine_code) == [True] * 2


def differentiate(rank, size, compiler):
    def loss(x):
        group = list(range(SIZE))
        gathered = functional.all_gather_tensor_autograd(x, 0, group)
        mine = functional.reduce_scatter_tensor_autograd(gathered**2, "sum", 0, group)
        moved = functional.all_to_all_single_autograd(
            mine, [2] * SIZE, [2] * SIZE, group
        )
        return (moved**2).sum()

    program = loss if compiler is None else torch.compile(loss, backend=compiler)
    x = (part(rank) / 100).requires_grad_()
    program(x).backward()
    parts = [(part(r) / 100).requires_grad_() for r in range(size)]
    # Each rank's sum contains every part squared once per rank, so no part may be lost.
    whole = sum(((size * p**2) ** 2).sum() for p in parts)
    whole.backward()
    return torch.allclose(x.grad, parts[rank].grad, rtol=1e-4)


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_functional_collectives_pass_gradients(compiler):
    assert run_ranks(SIZE, differentiate, compiler) == [True] * SIZE


def compile_plain(rank, size):
    """Calls of torch.distributed itself inside a compiled function."""

    @torch.compile(backend="aot_eager", fullgraph=True)
    def program(x):
        y = x * 2
        dist.all_reduce(y)
        whole = torch.empty(SIZE * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(whole, y + x)
        mine = torch.empty_like(x)
        dist.reduce_scatter_tensor(mine, whole)
        return mine

    found = program(part(rank))
    total = sum(part(r) for r in range(size))
    return torch.allclose(found, size * (total * 2 + part(rank)))


def test_plain_collectives_inside_a_compiled_function():
    assert run_ranks(SIZE, compile_plain) == [True] * SIZE


def count_works(rank, size):
    counts = []
    x = part(rank)
    y = torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
    counts.append(_get_work_registry_size())
    functional.wait_tensor(y)
    counts.append(_get_work_registry_size())
    # A work in progress may be the input of a graph; only then plain calls register
    # theirs.
    with functional.allow_inflight_collective_as_graph_input_ctx():
        works = [dist.all_reduce(x, async_op=True) for x in (part(0), part(1))]
        counts.append(_get_work_registry_size())
        for work in works:
            work.wait()
            counts.append(_get_work_registry_size())
        x = part(rank)
        work = dist.all_reduce(x, async_op=True)
        functional.wait_tensor(x)
        counts.append(_get_work_registry_size())
    return counts


def test_a_work_leaves_the_registry_when_it_is_waited_for():
    assert run_ranks(2, count_works) == [[1, 0, 2, 1, 0, 0]] * 2
