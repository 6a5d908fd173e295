# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Collectives and messages as data: how to call each, and its defined result.

An operation is the same on every rank of its group. `start` calls it on one rank.
`expected` is the defined result, which aikido must match bit for bit: reductions fold
in rank order, 16-bit floats in float32 with one rounding at the end. Ranks, roots,
sources and destinations are ranks of the group.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from harness.memory import COMPLEX, FLOATS, Memory, values

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A rank of a group, and the number that determines its data."""

    rank: int
    size: int
    number: int
    group: Any = None
    timeout: timedelta = timedelta(seconds=20)


@dataclass
class Started:
    """An operation in progress on one rank."""

    memory: Memory
    works: list[Any] = field(default_factory=list)
    # Works of receives. They are never dropped: their completion means that data
    # arrived.
    receives: list[Any] = field(default_factory=list)
    # Returns the results after completion; None: the results are the outputs in
    # `memory`.
    give: Callable[[], list[Any]] | None = None

    def results(self) -> list[Any]:
        if self.give is not None:
            return self.give()
        return [t.clone() for t in self.memory.outputs]

    def add(self, work: Any) -> None:
        if work is not None:
            self.works.append(work)


class Operation:
    """Base class. The fields hold all that the ranks must agree on."""

    def has_work(self) -> bool:
        """False if the call returns after completion, without a work to wait for."""
        return True

    def start(self, at: Place, is_async: bool) -> Started:
        raise NotImplementedError

    def expected(self, at: Place) -> list[Any]:
        raise NotImplementedError

    def refused_by_gloo(self) -> bool:
        """True if Gloo does not support it; then only the definition is compared."""
        return getattr(self, "dtype", None) == "int16"

    def is_defined_by_gloo(self, rank: int) -> bool:
        """True if Gloo defines the result on this rank."""
        return True

    def is_same_on_all_ranks(self) -> bool:
        return False


def ops_of(dtype: str) -> tuple[str, ...]:
    """Reductions that both backends and torch itself support for this dtype."""
    if dtype in COMPLEX:
        return ("SUM", "AVG")
    if dtype in FLOATS:
        return ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
    return ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


_FOLDS = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_FOLDS_OF_BOOL = {
    **dict.fromkeys(("SUM", "MAX", "BOR"), torch.logical_or),
    **dict.fromkeys(("PRODUCT", "MIN", "BAND"), torch.logical_and),
    "BXOR": torch.logical_xor,
}


def fold(op: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Folds in rank order; a mean is the sum times 1/n; 16-bit floats in float32."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        return functools.reduce(_FOLDS_OF_BOOL[op], parts)
    if dtype in (torch.float16, torch.bfloat16):
        parts = [p.float() for p in parts]
    total = functools.reduce(_FOLDS[op], parts)
    return (total * (1 / len(parts)) if op == "AVG" else total).to(dtype)


def red(op: str) -> Any:
    return getattr(dist.ReduceOp, op)


def split(tensor: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
    return list(torch.split(tensor, list(counts)))


# ---- reductions ----


@dataclass(frozen=True, kw_only=True)
class AllReduce(Operation):
    dtype: str
    op: str
    shape: Shape

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number, any_strides=True))
        tensor = started.memory.in_out(self._given(at.rank, at))
        started.add(
            dist.all_reduce(tensor, red(self.op), group=at.group, async_op=is_async)
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        return [fold(self.op, [self._given(r, at) for r in range(at.size)])]

    def is_same_on_all_ranks(self) -> bool:
        return True

    def _given(self, rank: int, at: Place) -> torch.Tensor:
        return values(self.dtype, self.shape, at.number, rank)


@dataclass(frozen=True, kw_only=True)
class CoalescedAllReduce(Operation):
    """Several reductions in one batch with one work."""

    dtype: str
    op: str
    shapes: tuple[Shape, ...]

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number, any_strides=True))
        tensors = [started.memory.in_out(t) for t in self._given(at.rank, at)]
        with _coalescing_manager(group=at.group, async_ops=is_async) as batch:
            for tensor in tensors:
                dist.all_reduce(tensor, red(self.op), group=at.group)
        started.works += batch.works if is_async else []
        return started

    def expected(self, at: Place) -> list[Any]:
        given = [self._given(r, at) for r in range(at.size)]
        return [fold(self.op, parts) for parts in zip(*given, strict=True)]

    def is_same_on_all_ranks(self) -> bool:
        return True

    def _given(self, rank: int, at: Place) -> list[torch.Tensor]:
        return [
            values(self.dtype, shape, at.number, rank, i)
            for i, shape in enumerate(self.shapes)
        ]


@dataclass(frozen=True, kw_only=True)
class Reduce(Operation):
    dtype: str
    op: str
    shape: Shape
    root: int

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number, any_strides=True))
        tensor = started.memory.in_out(self._given(at.rank, at))
        started.add(
            dist.reduce(
                tensor,
                op=red(self.op),
                group=at.group,
                group_dst=self.root,
                async_op=is_async,
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        if at.rank != self.root:  # its tensor is unchanged
            return [self._given(at.rank, at)]
        return [fold(self.op, [self._given(r, at) for r in range(at.size)])]

    def is_defined_by_gloo(self, rank: int) -> bool:
        return rank == self.root  # other ranks hold partial sums

    def _given(self, rank: int, at: Place) -> torch.Tensor:
        return values(self.dtype, self.shape, at.number, rank)


@dataclass(frozen=True, kw_only=True)
class ReduceScatter(Operation):
    """Takes a list of blocks, which may differ in size."""

    dtype: str
    op: str
    counts: tuple[int, ...]

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        blocks = [
            started.memory.input(self._given(at.rank, to, at)) for to in range(at.size)
        ]
        out = started.memory.output((self.counts[at.rank],), self.dtype)
        started.add(
            dist.reduce_scatter(
                out, blocks, red(self.op), group=at.group, async_op=is_async
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        return [fold(self.op, [self._given(r, at.rank, at) for r in range(at.size)])]

    def _given(self, giver: int, taker: int, at: Place) -> torch.Tensor:
        return values(self.dtype, (self.counts[taker],), at.number, giver, taker)


@dataclass(frozen=True, kw_only=True)
class ReduceScatterTensor(Operation):
    dtype: str
    op: str
    count: int
    in_place: bool  # the output is this rank's part of the input

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        given = torch.cat([self._given(at.rank, to, at) for to in range(at.size)])
        if self.in_place:
            whole = started.memory.in_out(given)
            out = whole[at.rank * self.count : (at.rank + 1) * self.count]
            # The backend may write anything to the rest of the input.
            started.give = lambda: [out.clone()]
        else:
            whole = started.memory.input(given)
            out = started.memory.output((self.count,), self.dtype)
        started.add(
            dist.reduce_scatter_tensor(
                out, whole, red(self.op), group=at.group, async_op=is_async
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        return [fold(self.op, [self._given(r, at.rank, at) for r in range(at.size)])]

    def _given(self, giver: int, taker: int, at: Place) -> torch.Tensor:
        return values(self.dtype, (self.count,), at.number, giver, taker)


@dataclass(frozen=True, kw_only=True)
class SparseAllReduce(Operation):
    """An entry may occur several times; a rank may have no entries."""

    dtype: str
    rows: int
    width: int
    entries: tuple[int, ...]  # number on each rank

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        tensor = self._given(at.rank, at)
        started.give = lambda: [tensor.to_dense()]
        started.add(dist.all_reduce(tensor, group=at.group, async_op=is_async))
        return started

    def expected(self, at: Place) -> list[Any]:
        parts = [self._given(r, at).coalesce() for r in range(at.size)]
        return [functools.reduce(lambda a, b: (a + b).coalesce(), parts).to_dense()]

    def is_same_on_all_ranks(self) -> bool:
        return True

    def _given(self, rank: int, at: Place) -> torch.Tensor:
        seed = torch.Generator().manual_seed(1000 * at.number + rank)
        count = self.entries[rank]
        indices = torch.randint(0, self.rows, (1, count), generator=seed)
        data = values(self.dtype, (count, self.width), at.number, rank)
        size = (self.rows, self.width)
        return torch.sparse_coo_tensor(indices, data, size, check_invariants=True)


# ---- copies ----


@dataclass(frozen=True, kw_only=True)
class Broadcast(Operation):
    dtype: str
    shape: Shape
    root: int

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number, any_strides=True))
        tensor = started.memory.in_out(
            values(self.dtype, self.shape, at.number, at.rank)
        )
        started.add(
            dist.broadcast(
                tensor, group=at.group, group_src=self.root, async_op=is_async
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        return [values(self.dtype, self.shape, at.number, self.root)]

    def is_same_on_all_ranks(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class AllGather(Operation):
    dtype: str
    shape: Shape

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number, any_strides=True))
        own = started.memory.input(values(self.dtype, self.shape, at.number, at.rank))
        outs = [started.memory.output(self.shape, self.dtype) for _ in range(at.size)]
        started.add(dist.all_gather(outs, own, group=at.group, async_op=is_async))
        return started

    def expected(self, at: Place) -> list[Any]:
        return [values(self.dtype, self.shape, at.number, r) for r in range(at.size)]

    def is_same_on_all_ranks(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class AllGatherIntoTensor(Operation):
    dtype: str
    count: int
    in_place: bool  # the input is this rank's part of the output

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        own = values(self.dtype, (self.count,), at.number, at.rank)
        out = started.memory.output((at.size * self.count,), self.dtype)
        if self.in_place:
            part = out[at.rank * self.count : (at.rank + 1) * self.count]
            own = part.copy_(own)
        else:
            own = started.memory.input(own)
        started.add(
            dist.all_gather_into_tensor(out, own, group=at.group, async_op=is_async)
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        parts = [
            values(self.dtype, (self.count,), at.number, r) for r in range(at.size)
        ]
        return [torch.cat(parts)]

    def is_same_on_all_ranks(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class Gather(Operation):
    dtype: str
    shape: Shape
    root: int

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number, any_strides=True))
        own = started.memory.input(values(self.dtype, self.shape, at.number, at.rank))
        outs = None
        if at.rank == self.root:
            outs = [
                started.memory.output(self.shape, self.dtype) for _ in range(at.size)
            ]
        started.add(
            dist.gather(
                own, outs, group=at.group, group_dst=self.root, async_op=is_async
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        if at.rank != self.root:
            return []
        return [values(self.dtype, self.shape, at.number, r) for r in range(at.size)]

    def refused_by_gloo(self) -> bool:
        return super().refused_by_gloo() or self.dtype in COMPLEX


@dataclass(frozen=True, kw_only=True)
class Scatter(Operation):
    dtype: str
    shape: Shape
    root: int

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        blocks = None
        if at.rank == self.root:
            blocks = [
                started.memory.input(values(self.dtype, self.shape, at.number, r))
                for r in range(at.size)
            ]
        out = started.memory.output(self.shape, self.dtype)
        started.add(
            dist.scatter(
                out, blocks, group=at.group, group_src=self.root, async_op=is_async
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        return [values(self.dtype, self.shape, at.number, at.rank)]


@dataclass(frozen=True, kw_only=True)
class AllToAllSingle(Operation):
    """`counts[giver][taker]` rows; if is_even, torch gets no split sizes."""

    dtype: str
    counts: tuple[tuple[int, ...], ...]
    width: int  # elements in a row
    is_even: bool

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        sending = list(self.counts[at.rank])
        taking = [row[at.rank] for row in self.counts]
        own = started.memory.input(
            torch.cat([self._block(at.rank, to, at) for to in range(at.size)])
        )
        out = started.memory.output((sum(taking), self.width), self.dtype)
        started.add(
            dist.all_to_all_single(
                out,
                own,
                None if self.is_even else taking,
                None if self.is_even else sending,
                group=at.group,
                async_op=is_async,
            )
        )
        return started

    def expected(self, at: Place) -> list[Any]:
        return [torch.cat([self._block(r, at.rank, at) for r in range(at.size)])]

    def _block(self, giver: int, taker: int, at: Place) -> torch.Tensor:
        shape = (self.counts[giver][taker], self.width)
        return values(self.dtype, shape, at.number, giver, taker)


@dataclass(frozen=True, kw_only=True)
class AllToAll(Operation):
    """`counts[giver][taker]` elements, as lists of tensors."""

    dtype: str
    counts: tuple[tuple[int, ...], ...]

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        own = [
            started.memory.input(self._block(at.rank, to, at)) for to in range(at.size)
        ]
        outs = [
            started.memory.output((row[at.rank],), self.dtype) for row in self.counts
        ]
        started.add(dist.all_to_all(outs, own, group=at.group, async_op=is_async))
        return started

    def expected(self, at: Place) -> list[Any]:
        return [self._block(r, at.rank, at) for r in range(at.size)]

    def refused_by_gloo(self) -> bool:
        return True  # not supported before torch 2.15

    def _block(self, giver: int, taker: int, at: Place) -> torch.Tensor:
        shape = (self.counts[giver][taker],)
        return values(self.dtype, shape, at.number, giver, taker)


# ---- neither reductions nor copies ----


@dataclass(frozen=True, kw_only=True)
class Barrier(Operation):
    is_monitored: bool

    def has_work(self) -> bool:
        return not self.is_monitored

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        if self.is_monitored:
            # Torch's default is half an hour instead of the time-out of the group. The
            # method of the group is called directly, because torch's function accepts
            # only Gloo in older versions.
            group = at.group or dist.group.WORLD
            group.monitored_barrier(at.timeout, wait_all_ranks=False)
        else:
            started.add(dist.barrier(group=at.group, async_op=is_async))
        return started

    def expected(self, at: Place) -> list[Any]:
        return []


@dataclass(frozen=True, kw_only=True)
class Objects(Operation):
    """Pickled objects, sent by torch functions that combine several collectives."""

    call: str
    length: int  # of the text, times the rank
    root: int

    CALLS: ClassVar[tuple[str, ...]] = ("all_gather", "broadcast", "gather", "scatter")

    def has_work(self) -> bool:
        return False

    def start(self, at: Place, is_async: bool) -> Started:
        got: list[Any] = [None] * at.size
        own = self._object(at.rank, at)
        everybody = [self._object(r, at) for r in range(at.size)]
        is_root = at.rank == self.root
        if self.call == "all_gather":
            dist.all_gather_object(got, own, group=at.group)
        elif self.call == "broadcast":
            got = everybody if is_root else got
            dist.broadcast_object_list(got, group=at.group, group_src=self.root)
        elif self.call == "gather":
            dist.gather_object(
                own, got if is_root else None, group=at.group, group_dst=self.root
            )
        else:
            got = [None]
            dist.scatter_object_list(
                got,
                everybody if is_root else None,
                group=at.group,
                group_src=self.root,
            )
        return Started(Memory(at.number), give=lambda: got)

    def expected(self, at: Place) -> list[Any]:
        everybody = [self._object(r, at) for r in range(at.size)]
        if self.call == "scatter":
            return [everybody[at.rank]]
        if self.call == "gather" and at.rank != self.root:
            return [None] * at.size
        return everybody

    def _object(self, rank: int, at: Place) -> Any:
        return {"number": at.number, "rank": rank, "text": "x" * (self.length * rank)}


# ---- messages ----


@dataclass(frozen=True, kw_only=True)
class Message:
    giver: int
    taker: int
    tag: int
    count: int


@dataclass(frozen=True, kw_only=True)
class Messages(Operation):
    """Messages in the order of sending, received in the order of `receiving`.

    ways: "blocking" sends, then receives one message after the other; "posted" posts
    all receives before it sends; "batch" is one batch_isend_irecv.
    """

    dtype: str
    messages: tuple[Message, ...]
    receiving: tuple[int, ...]
    way: str

    WAYS: ClassVar[tuple[str, ...]] = ("blocking", "posted", "batch")

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        sending = [
            (m, started.memory.input(self._data(i, at)))
            for i, m in enumerate(self.messages)
            if m.giver == at.rank
        ]
        taking = [
            (
                self.messages[i],
                started.memory.output((self.messages[i].count,), self.dtype),
            )
            for i in self._taken(at.rank)
        ]
        if self.way == "batch":
            self._batch(started, sending, taking, at)
            return started
        if self.way == "posted":
            started.receives = [
                dist.irecv(t, group=at.group, group_src=m.giver, tag=m.tag)
                for m, t in taking
            ]
        started.works = [
            dist.isend(t, group=at.group, group_dst=m.taker, tag=m.tag)
            for m, t in sending
        ]
        if self.way == "blocking":
            for m, t in taking:
                dist.recv(t, group=at.group, group_src=m.giver, tag=m.tag)
        return started

    def _batch(self, started: Started, sending: Any, taking: Any, at: Place) -> None:
        calls = [
            dist.P2POp(dist.isend, t, group=at.group, tag=m.tag, group_peer=m.taker)
            for m, t in sending
        ]
        calls += [
            dist.P2POp(dist.irecv, t, group=at.group, tag=m.tag, group_peer=m.giver)
            for m, t in taking
        ]
        if calls:
            started.receives = dist.batch_isend_irecv(calls)

    def expected(self, at: Place) -> list[Any]:
        return [self._data(i, at) for i in self._taken(at.rank)]

    def refused_by_gloo(self) -> bool:
        return False  # Gloo copies bytes of any dtype

    def _taken(self, rank: int) -> list[int]:
        return [i for i in self.receiving if self.messages[i].taker == rank]

    def _data(self, index: int, at: Place) -> torch.Tensor:
        return values(self.dtype, (self.messages[index].count,), at.number, index)


@dataclass(frozen=True, kw_only=True)
class FromAnybody(Operation):
    """Every other rank sends `each` messages; the taker receives from any source."""

    dtype: str
    count: int
    each: int
    taker: int
    tag: int  # used by no other operation

    def start(self, at: Place, is_async: bool) -> Started:
        started = Started(Memory(at.number))
        if at.rank != self.taker:
            for i in range(self.each):
                data = started.memory.input(self._data(at.rank, i, at))
                started.works.append(
                    dist.isend(data, group=at.group, group_dst=self.taker, tag=self.tag)
                )
            return started
        got: list[tuple[int, torch.Tensor]] = []
        for _ in range(self.each * (at.size - 1)):
            out = started.memory.output((self.count,), self.dtype)
            source = dist.recv(out, group=at.group, tag=self.tag)
            # Messages of one giver arrive in order; the order between givers is free.
            got.append((source, out))
        got.sort(key=lambda pair: pair[0])
        givers = [dist.get_group_rank(at.group, source) for source, _ in got]
        started.give = lambda: [Counter(givers), *(t.clone() for _, t in got)]
        return started

    def expected(self, at: Place) -> list[Any]:
        if at.rank != self.taker:
            return []
        givers = [r for r in range(at.size) if r != self.taker]
        return [
            Counter(dict.fromkeys(givers, self.each)),
            *(self._data(r, i, at) for r in givers for i in range(self.each)),
        ]

    def refused_by_gloo(self) -> bool:
        return self.count == 0

    def _data(self, rank: int, index: int, at: Place) -> torch.Tensor:
        return values(self.dtype, (self.count,), at.number, rank, index)
