# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Conjugate and negative views: their shown values count, not their memory."""

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.testing import run_ranks

pytestmark = pytest.mark.beside

SHAPE = (4, 3)
KINDS = ("conj", "neg", "conj and neg", "strided conj")


def data(*key):
    seed = torch.Generator().manual_seed(hash(key))
    parts = torch.randint(-9, 9, (*SHAPE, 2), generator=seed).float()
    return torch.view_as_complex(parts)


def shown(kind, values):
    """A view that shows `values` over memory with other values."""
    if kind == "conj":
        return values.conj().resolve_conj().conj()
    if kind == "neg":
        return torch._neg_view(-values)
    if kind == "conj and neg":
        return torch._neg_view((-values).conj().resolve_conj().conj())
    return values.conj().resolve_conj().t().contiguous().t().conj()


def plain(tensor):
    return tensor.resolve_conj().resolve_neg()


def with_functions_of_ours(rank, size):
    """Views on rank 0 only, then on all ranks; each call gives the same values."""
    wrong = []
    for kind in KINDS:
        for on in ((0,), range(size)):
            show = (lambda t, kind=kind: shown(kind, t)) if rank in on else torch.clone
            total = sum(data(r) for r in range(size))
            tensor = show(data(rank))
            aikido_torch.all_reduce(tensor)
            if not torch.equal(plain(tensor), total):
                wrong.append(f"all_reduce, {kind} on {on}")
            each = SHAPE[0] // size
            mine = total[rank * each : (rank + 1) * each]
            out = show(torch.zeros_like(mine))
            aikido_torch.reduce_scatter_tensor(out, show(data(rank)))
            if not torch.equal(plain(out), mine):
                wrong.append(f"reduce_scatter_tensor, {kind} on {on}")
            out = show(torch.zeros_like(mine))
            blocks = [show(block) for block in data(rank).split(each)]
            aikido_torch.reduce_scatter(out, blocks)
            if not torch.equal(plain(out), mine):
                wrong.append(f"reduce_scatter, {kind} on {on}")
    return wrong


def test_functions_of_aikido_read_and_write_the_shown_values_of_views():
    assert run_ranks(2, with_functions_of_ours) == [[]] * 2


def negative(values):
    return torch._neg_view(-values)


def with_functions_of_torch(rank, size):
    """Views as inputs only.

    Torch passes every backend a copy of a view, so that results written to it are lost.
    Conjugate views are left out, because torch cannot view them as real numbers.
    """
    given = [torch.arange(4.0) * (r + 1) + 1 for r in range(size)]
    total = sum(given)
    view = negative(given[rank])
    copied = view if rank == 1 else torch.zeros(4)
    dist.broadcast(copied, src=1)
    outs = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(outs, view)
    joined = torch.zeros(4 * size)
    dist.all_gather_into_tensor(joined, view)
    part = torch.zeros(4 // size)
    dist.reduce_scatter_tensor(part, view)
    crossed = torch.zeros(4)
    dist.all_to_all_single(crossed, view)
    sent = dist.isend(view, (rank + 1) % size)
    received = torch.zeros(4)
    dist.recv(received, (rank - 1) % size)
    sent.wait()
    # The values of the sparse tensor are a negative view.
    sparse = torch.sparse_coo_tensor(torch.arange(4)[None], view, (4,))
    dist.all_reduce(sparse)
    halves = [t.split(4 // size)[rank] for t in given]
    checks = {
        "broadcast": (copied, given[1]),
        "all_gather": (torch.cat(outs), torch.cat(given)),
        "all_gather_into_tensor": (joined, torch.cat(given)),
        "reduce_scatter_tensor": (part, total.split(4 // size)[rank]),
        "all_to_all_single": (crossed, torch.cat(halves)),
        "recv": (received, given[(rank - 1) % size]),
        "sparse": (plain(sparse.to_dense()), total),
    }
    return [name for name, (a, b) in checks.items() if not torch.equal(plain(a), b)]


def test_functions_of_torch_take_negative_views():
    assert run_ranks(2, with_functions_of_torch) == [[]] * 2
