# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tensors that are not contiguous, in every call that accepts them."""

import pytest
import torch
import torch.distributed as dist

import aikido_torch
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import run_ranks

SHAPE = (2, 3, 4, 5)
CONTIGUOUS = "contiguous"
LAYOUTS = ("channels_last", "transposed", "gaps")


def laid_out(layout, data):
    """A tensor with these values; memory between its elements must not change."""
    if layout == "channels_last":
        return data.to(memory_format=torch.channels_last)
    if layout == "transposed":
        return data.transpose(0, 3).contiguous().transpose(0, 3)
    if layout == "gaps":
        *outer, inner = data.shape
        return torch.full((*outer, 2 * inner), -7.0)[..., ::2].copy_(data)
    return data.clone()


def data(*key):
    seed = torch.Generator().manual_seed(hash(key))
    return torch.randint(0, 9, SHAPE, generator=seed).float()


class Call:
    """One call on one rank; `layout` applies to its inputs, its outputs, or both."""

    def __init__(self, rank, size, layout, of):
        self.rank, self.size, self.everybody = rank, size, range(size)
        self.layout_in = layout if "in" in of else CONTIGUOUS
        self.layout_out = layout if "out" in of else CONTIGUOUS
        self.junk = torch.full(SHAPE, -1.0)

    def given(self, *key):
        return laid_out(self.layout_in, data(*key))

    def out(self):
        return laid_out(self.layout_out, self.junk)

    def outs(self):
        return [self.out() for _ in self.everybody]

    def in_out(self, *key):
        return laid_out(self.layout_out, data(*key))

    def total(self, *key):
        return sum(data(r, *key) for r in self.everybody)


def all_reduce(c):
    tensor = c.in_out(c.rank)
    dist.all_reduce(tensor)
    return [tensor], [c.total()]


def all_reduce_that_may_skip(c):
    tensor = c.in_out(c.rank)
    policy = SkipStraggler(min_contributors=c.size)
    aikido_torch.all_reduce(tensor, policy=policy)
    return [tensor], [c.total()]


def all_reduce_coalesced(c):
    tensors = [c.in_out(c.rank, i) for i in range(3)]
    dist.all_reduce_coalesced(tensors)
    return tensors, [c.total(i) for i in range(3)]


def reduce(c):
    tensor = c.in_out(c.rank)
    dist.reduce(tensor, dst=1)
    return [tensor], [c.total() if c.rank == 1 else data(c.rank)]


def reduce_scatter(c):
    out = c.out()
    dist.reduce_scatter(out, [c.given(c.rank, to) for to in c.everybody])
    return [out], [c.total(c.rank)]


def reduce_scatter_tensor(c):
    out = c.out()
    given = torch.cat([data(c.rank, to) for to in c.everybody])
    dist.reduce_scatter_tensor(out, laid_out(c.layout_in, given))
    return [out], [c.total(c.rank)]


def reduce_scatter_tensor_coalesced(c):
    outs = [c.out(), c.out()]
    givens = [torch.cat([data(c.rank, to, i) for to in c.everybody]) for i in (0, 1)]
    with dist._coalescing_manager():
        for out, given in zip(outs, givens, strict=True):
            dist.reduce_scatter_tensor(out, laid_out(c.layout_in, given))
    return outs, [c.total(c.rank, i) for i in (0, 1)]


def broadcast(c):
    tensor = c.given(1) if c.rank == 1 else c.out()
    dist.broadcast(tensor, src=1)
    return [tensor], [data(1)]


def all_gather(c):
    outs = c.outs()
    dist.all_gather(outs, c.given(c.rank))
    return outs, [data(r) for r in c.everybody]


def all_gather_in_place(c):
    outs = [c.in_out(c.rank, r) for r in c.everybody]
    dist.all_gather(outs, outs[c.rank])
    return outs, [data(r, r) for r in c.everybody]


def all_gather_into_tensor(c):
    out = laid_out(c.layout_out, torch.cat([c.junk for _ in c.everybody]))
    dist.all_gather_into_tensor(out, c.given(c.rank))
    return [out], [torch.cat([data(r) for r in c.everybody])]


def all_gather_into_tensor_coalesced(c):
    outs = [laid_out(c.layout_out, torch.cat([c.junk] * c.size)) for _ in (0, 1)]
    with dist._coalescing_manager():
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, c.given(c.rank, i))
    return outs, [torch.cat([data(r, i) for r in c.everybody]) for i in (0, 1)]


def all_gather_coalesced(c):
    outs = [[c.out(), c.out()] for _ in c.everybody]
    dist.all_gather_coalesced(outs, [c.given(c.rank, 0), c.given(c.rank, 1)])
    flat = [out for pair in outs for out in pair]
    return flat, [data(r, i) for r in c.everybody for i in (0, 1)]


def gather(c):
    outs = c.outs() if c.rank == 1 else None
    dist.gather(c.given(c.rank), outs, dst=1)
    return outs or [], [data(r) for r in c.everybody] if c.rank == 1 else []


def scatter(c):
    out = c.out()
    given = [c.given(to) for to in c.everybody] if c.rank == 1 else None
    dist.scatter(out, given, src=1)
    return [out], [data(c.rank)]


def all_to_all(c):
    outs = c.outs()
    dist.all_to_all(outs, [c.given(c.rank, to) for to in c.everybody])
    return outs, [data(r, c.rank) for r in c.everybody]


def send_and_receive(c):
    out = c.out()
    right, left = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    sent = dist.isend(c.given(c.rank), right)
    dist.recv(out, left)
    sent.wait()
    return [out], [data(left)]


def receive_from_anybody(c):
    out = c.out()
    sent = dist.isend(c.given(c.rank), (c.rank + 1) % c.size)
    dist.recv(out)
    sent.wait()
    return [out], [data((c.rank - 1) % c.size)]


CALLS = (
    all_reduce, all_reduce_that_may_skip, all_reduce_coalesced, reduce, reduce_scatter,
    reduce_scatter_tensor, reduce_scatter_tensor_coalesced, broadcast, all_gather,
    all_gather_in_place, all_gather_coalesced, all_gather_into_tensor,
    all_gather_into_tensor_coalesced, gather, scatter, all_to_all, send_and_receive,
    receive_from_anybody,
)  # fmt: skip


def wrong_calls(rank, size):
    wrong = []
    for layout in LAYOUTS:
        for of in ("in", "out", "in and out"):
            for call in CALLS:
                got, wanted = call(Call(rank, size, layout, of))
                # Ranks with different strides get the same values.
                odd = layout if rank == 0 else CONTIGUOUS
                got_odd, _ = call(Call(rank, size, odd, of))
                for tensors in (got, got_odd):
                    if len(tensors) != len(wanted) or not all(
                        torch.equal(a, b) for a, b in zip(tensors, wanted, strict=True)
                    ):
                        wrong.append(f"{call.__name__}, {layout} {of}")
                if layout == "gaps":
                    gaps = [t._base[..., 1::2] for t in got if t._base is not None]
                    if not all(bool((gap == -7).all()) for gap in gaps):
                        wrong.append(f"{call.__name__} wrote between its elements")
    return wrong


def test_every_call_gives_the_same_result_for_any_strides():
    assert run_ranks(3, wrong_calls) == [[]] * 3


def keep_autograd_out(rank, size):
    """Parameters and tensors of inference mode may be strided too."""
    leaf = torch.nn.Parameter(laid_out("transposed", data(rank)))
    version = leaf._version
    dist.broadcast(leaf, src=0)
    with torch.inference_mode():
        inferred = laid_out("transposed", data(rank))
    dist.all_reduce(inferred)
    total = data(0) + data(1)
    return [
        torch.equal(leaf.detach(), data(0)),
        leaf.grad_fn is None and leaf._version == version,
        torch.equal(inferred, total),
    ]


def test_autograd_does_not_forbid_or_record_the_writes_of_a_call():
    assert run_ranks(2, keep_autograd_out) == [[True] * 3] * 2


def refuse(rank, size):
    row = torch.ones(4)
    shared = torch.ones(1).expand(4)
    column = torch.ones(4, 2)[:, 0]
    calls = {
        "all_reduce": lambda: dist.all_reduce(shared),
        "all_gather": lambda: dist.all_gather([row, shared], row),
        "all_to_all": lambda: dist.all_to_all([shared] * 2, [row] * 2),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([row, shared]),
        "recv": lambda: dist.recv(shared, 1 - rank),
        "all_to_all_single": lambda: dist.all_to_all_single(row, column),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
            torch.ones(1).expand(8), row
        ),
    }
    texts = {}
    for name, call in calls.items():
        with pytest.raises(ConfigError) as caught:
            call()
        texts[name] = str(caught.value)
    # An input may share memory between its elements.
    outs = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(outs, shared)
    return texts, torch.cat(outs).tolist()


def test_outputs_with_shared_memory_and_unfit_sizes_are_refused():
    for rank, (texts, after) in enumerate(run_ranks(2, refuse)):
        assert after == [1.0] * 8
        assert texts["all_reduce"] == (
            f"all_reduce on rank {rank}: argument tensor of shape [4] and strides [0] "
            "has elements that share memory, so no result can be written there; pass "
            ".contiguous() or .clone()"
        )
        for name in (
            "all_gather", "all_to_all", "all_reduce_coalesced", "recv",
            "all_gather_into_tensor",
        ):  # fmt: skip
            assert "has elements that share memory" in texts[name]
        assert texts["all_to_all_single"].startswith(
            "Tensors must be contiguous: all_to_all_single on rank"
        )
