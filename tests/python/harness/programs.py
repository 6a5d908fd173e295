# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Random programs of collectives and messages: number -> program, as data.

A program is the same on every rank. Any subset of its steps is a program too. Leaving
out steps to find the failing step does not change the other steps.

Programs avoid the cases in which the backends differ by design:

- Ranks that call with different shapes, dtypes or roots. Aikido refuses such calls,
  Gloo mixes their bytes. Messages are received with the size that was sent.
- Reductions that torch refuses (products of complex numbers) or that Gloo lacks
  (bitwise operations of floats, means of integers).
- NaN and infinity. Minimum and maximum of Gloo depend on the order of the ranks.
- Messages from a rank to itself. Torch refuses them.
- Dropped works of messages on Gloo. Gloo cancels the message then.

Some calls do not exist in Gloo: int16, gather of complex numbers, empty messages from
any source. They run on aikido alone, and only the definition is compared.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness import operations as ops
from harness.memory import DTYPES

KIB = 1024
# Default of `transport.eager_bytes`. The receiver requests the rest of larger blocks.
EAGER_BYTES = 256 * KIB

_ITEM_BYTES = {
    "uint8": 1, "int8": 1, "bool": 1, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8, "complex64": 8,
    "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class GroupPlan:
    """A group beside the default group, made just before its first step.

    A "local" group (use_local_synchronization) is the only group of its program: after
    it, torch names further groups differently on members and on other ranks.
    """

    ranks: tuple[int, ...]
    how: str


@dataclass(frozen=True)
class Step:
    """One operation on one group; group 0 is the default group.

    endings: "wait" waits at once; "later" waits at the next Settle; "drop" drops the
    work, and a barrier makes sure that it has ended.
    """

    operation: ops.Operation
    group: int
    ending: str
    number: int  # key of its data, and place in the program

    ENDINGS = ("wait", "later", "drop")


@dataclass(frozen=True)
class Settle:
    """Waits for all works in progress, in a different order on each rank."""

    number: int


@dataclass(frozen=True)
class Program:
    number: int
    size: int
    groups: tuple[GroupPlan, ...]  # entry 0 is group 1
    steps: tuple[Step | Settle, ...]

    def ranks_of(self, group: int) -> tuple[int, ...]:
        return self.groups[group - 1].ranks if group else tuple(range(self.size))

    def only(self, steps: Sequence[Step | Settle]) -> "Program":
        return replace(self, steps=tuple(steps))

    def __str__(self) -> str:
        lines = [f"program {self.number} of {self.size} ranks"]
        used = {step.group for step in self.steps if isinstance(step, Step)}
        for i, group in enumerate(self.groups, 1):
            if i in used:
                lines.append(f"  group {i}: ranks {list(group.ranks)}, {group.how}")
        for step in self.steps:
            if isinstance(step, Settle):
                lines.append(f"  {step.number}: settle")
            else:
                where = f"group {step.group}, {step.ending}"
                lines.append(f"  {step.number}: {where}: {step.operation}")
        return "\n".join(lines)


def size_of(number: int) -> int:
    return 2 + number % 3


def program(number: int, num_steps: int = 32) -> Program:
    """The program with this number, for 2 to 4 ranks."""
    rng = random.Random(number)
    size = size_of(number)
    groups = _groups(rng, size)
    steps: list[Step | Settle] = []
    for i in range(num_steps):
        if rng.random() < 0.12:
            steps.append(Settle(i))
            continue
        group = rng.choice((0, 0, *range(1, len(groups) + 1)))
        members = size if group == 0 else len(groups[group - 1].ranks)
        operation = operation_of(rng, members, i)
        ending = rng.choice(Step.ENDINGS) if operation.has_work() else "wait"
        steps.append(Step(operation, group, ending, i))
    return Program(number, size, groups, tuple(steps))


def delays(number: int, run: str, rank: int) -> Iterator[float]:
    """Seconds before each step of a rank, so that calls come before or after frames."""
    rng = random.Random(f"{number} {run} {rank}")
    while True:
        kind = rng.random()
        yield 0.0 if kind < 0.6 else rng.uniform(0, 0.003 if kind < 0.97 else 0.02)


def shorter(whole: Program, failing: int | None) -> Iterator[Program]:
    """Yields shorter and shorter parts to try; send True if the part still fails.

    First come the failing step alone and the steps up to it. Then halves, quarters and
    so on are left out.
    """
    steps = whole.steps
    if failing is not None:
        for start in (failing, 0):
            if (yield whole.only(steps[start : failing + 1])):
                steps = steps[start : failing + 1]
                break
    size = max(1, len(steps) // 2)
    while len(steps) > 1:
        for at in range(0, len(steps), size):
            part = steps[:at] + steps[at + size :]
            if part and (yield whole.only(part)):
                steps = part
                break
        else:
            if size == 1:
                return
            size = max(1, size // 2)
        size = min(size, max(1, len(steps) // 2))


# ---- random parts ----


def _groups(rng: random.Random, size: int) -> tuple[GroupPlan, ...]:
    groups = []
    for _ in range(rng.randint(1, 3)):
        members = 1 if rng.random() < 0.08 else rng.randint(2, size)
        ranks = tuple(sorted(rng.sample(range(size), members)))
        groups.append(GroupPlan(ranks, rng.choice(("new_group", "split_group"))))
    if len(groups) == 1 and rng.random() < 0.5:
        return (replace(groups[0], how="local"),)
    return tuple(groups)


def count_of(rng: random.Random, dtype: str) -> int:
    """Number of elements, from none to some MiB, often near the eager limit."""
    item = _ITEM_BYTES[dtype]
    kind = rng.random()
    if kind < 0.08:
        return 0
    if kind < 0.45:
        return rng.randint(1, 64)
    if kind < 0.70:
        return rng.randint(65, 5000)
    if kind < 0.83:
        return EAGER_BYTES // item + rng.randint(-2, 2)
    if kind < 0.985:
        return rng.randint(EAGER_BYTES, 2 * EAGER_BYTES) // item
    return rng.randint(1024 * KIB, 4096 * KIB) // item


def _shape(rng: random.Random, dtype: str) -> ops.Shape:
    count = count_of(rng, dtype)
    kind = rng.random()
    if count == 1 and kind < 0.5:
        return ()
    if kind < 0.2:
        return (2, count // 2)
    if kind < 0.3:
        return (count // 6, 3, 2)
    return (count,)


def _matrix(rng: random.Random, dtype: str, size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(count_of(rng, dtype) if rng.random() < 0.8 else 0 for _ in range(size))
        for _ in range(size)
    )


def operation_of(
    rng: random.Random, size: int, number: int, kind: str | None = None
) -> ops.Operation:
    """A random operation for a group of `size`; of the given kind, if there is one."""
    kind = kind or rng.choice(KINDS if size > 1 else KINDS_ALONE)
    return _MAKERS[kind](rng, size, number, rng.choice(DTYPES))


def _reduction(rng: random.Random, dtype: str) -> dict[str, str]:
    return {"dtype": dtype, "op": rng.choice(ops.ops_of(dtype))}


def _sparse(rng, size, number, dtype):
    return ops.SparseAllReduce(
        # Torch has no sparse sum for other dtypes.
        dtype=rng.choice(("float32", "float64", "int64", "int32", "bfloat16", "uint8")),
        rows=rng.choice((1, 7, 300, 9000)),
        width=rng.choice((1, 3, 16)),
        entries=tuple(rng.choice((0, 1, 5, 400, 3000)) for _ in range(size)),
    )


def _all_to_all_single(rng, size, number, dtype):
    is_even = rng.random() < 0.4
    width = rng.choice((1, 1, 2, 5))
    counts = _matrix(rng, dtype, size)
    if is_even:
        each = count_of(rng, dtype)
        counts = ((each,) * size,) * size
    counts = tuple(tuple(c // width for c in row) for row in counts)
    return ops.AllToAllSingle(dtype=dtype, counts=counts, width=width, is_even=is_even)


def _messages(rng, size, number, dtype):
    pairs = list(itertools.permutations(range(size), 2))
    messages = []
    for giver, taker in rng.choices(pairs, k=rng.randint(1, 8)):
        count = count_of(rng, dtype)
        tag = rng.randint(0, 3)
        messages.append(ops.Message(giver=giver, taker=taker, tag=tag, count=count))
    # Any order, but messages with equal giver, taker and tag are received as sent.
    mixed = rng.sample(range(len(messages)), len(messages))
    alike: dict[tuple[int, int, int], list[int]] = {}
    for i, m in enumerate(messages):
        alike.setdefault((m.giver, m.taker, m.tag), []).append(i)
    receiving = []
    for i in mixed:
        m = messages[i]
        receiving.append(alike[m.giver, m.taker, m.tag].pop(0))
    return ops.Messages(
        dtype=dtype,
        messages=tuple(messages),
        receiving=tuple(receiving),
        way=rng.choice(ops.Messages.WAYS),
    )


def _from_anybody(rng, size, number, dtype):
    return ops.FromAnybody(
        dtype=dtype,
        count=count_of(rng, dtype),
        each=rng.randint(1, 3),
        taker=rng.randrange(size),
        tag=1000 + number,
    )


def _objects(rng, size, number, dtype):
    return ops.Objects(
        call=rng.choice(ops.Objects.CALLS),
        length=rng.choice((0, 10, 3000, 90_000)),
        root=rng.randrange(size),
    )


_MAKERS = {
    "all_reduce": lambda rng, size, number, dtype: ops.AllReduce(
        **_reduction(rng, dtype), shape=_shape(rng, dtype)
    ),
    "coalesced all_reduce": lambda rng, size, number, dtype: ops.CoalescedAllReduce(
        **_reduction(rng, dtype),
        shapes=tuple(_shape(rng, dtype) for _ in range(rng.randint(1, 5))),
    ),
    "reduce": lambda rng, size, number, dtype: ops.Reduce(
        **_reduction(rng, dtype), shape=_shape(rng, dtype), root=rng.randrange(size)
    ),
    "reduce_scatter": lambda rng, size, number, dtype: ops.ReduceScatter(
        **_reduction(rng, dtype),
        counts=tuple(count_of(rng, dtype) for _ in range(size))
        if rng.random() < 0.5
        else (count_of(rng, dtype),) * size,
    ),
    "reduce_scatter_tensor": lambda rng, size, number, dtype: ops.ReduceScatterTensor(
        **_reduction(rng, dtype),
        count=count_of(rng, dtype),
        in_place=rng.random() < 0.3,
    ),
    "sparse all_reduce": _sparse,
    "broadcast": lambda rng, size, number, dtype: ops.Broadcast(
        dtype=dtype, shape=_shape(rng, dtype), root=rng.randrange(size)
    ),
    "all_gather": lambda rng, size, number, dtype: ops.AllGather(
        dtype=dtype, shape=_shape(rng, dtype)
    ),
    "all_gather_into_tensor": lambda rng, size, number, dtype: ops.AllGatherIntoTensor(
        dtype=dtype, count=count_of(rng, dtype), in_place=rng.random() < 0.3
    ),
    "gather": lambda rng, size, number, dtype: ops.Gather(
        dtype=dtype, shape=_shape(rng, dtype), root=rng.randrange(size)
    ),
    "scatter": lambda rng, size, number, dtype: ops.Scatter(
        dtype=dtype, shape=_shape(rng, dtype), root=rng.randrange(size)
    ),
    "all_to_all_single": _all_to_all_single,
    "all_to_all": lambda rng, size, number, dtype: ops.AllToAll(
        dtype=dtype, counts=_matrix(rng, dtype, size)
    ),
    "barrier": lambda rng, size, number, dtype: ops.Barrier(
        is_monitored=rng.random() < 0.4
    ),
    "objects": _objects,
    "messages": _messages,
    "from anybody": _from_anybody,
}
KINDS = tuple(_MAKERS)
KINDS_ALONE = tuple(k for k in KINDS if k not in ("messages", "from anybody"))
