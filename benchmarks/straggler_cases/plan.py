# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Work of the ranks of a case, and actions on them: plain values, no torch.

A run is a list of blocks, done one after the other by the same processes, so that
aikido, the comparison values and Gloo take turns under the same conditions. The ranks
get the blocks as JSON. Links and actions stay with the process that started them.
"""

import dataclasses
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import common

NUM_RANKS = 4
BAD = 3  # the rank or host with a fault
MBIT = 200.0
MIB = 1 << 20
BATCH = 32  # samples of one rank in a training step
EVALUATION_S = 0.2  # upper limit for four ranks at the same time on two cores
PLAN_FILE = "plan.json"  # in the folder of a run
# z of the 99th percentile of the normal distribution.
_Z99 = 2.3263478740408408

# Ranks that take part in an arm; op_rank.py has the calls of each arm.
ARMS = {
    "skip": (0, 1, 2, 3),
    "strict": (0, 1, 2, 3),
    "exact": (0, 1, 2, 3),
    "plain": (0, 1, 2, 3),
    "fixed": (0, 1, 2, 3),
    "gloo": (0, 1, 2, 3),
    "skip3": (0, 1, 2),
    "strict3": (0, 1, 2),
    "gloo3": (0, 1, 2),
}


@dataclass(frozen=True, kw_only=True)
class Action:
    """Action on a host or a rank while a block runs.

    Its time counts from the start of the block, or from the moment when the first
    healthy rank begins operation `at_op` (the number of operations: when it has ended
    them).
    """

    do: str  # one of: link, cut, heal, stop, continue, kill, flow
    target: int = BAD
    at_op: int | None = None
    after_s: float = 0.0
    up_mbit: float = MBIT
    down_mbit: float = MBIT
    to: int | None = None  # for flow: the receiving host
    for_s: float = 0.0  # for flow


@dataclass(frozen=True, kw_only=True)
class Block:
    """Operations or training steps of one arm in a row."""

    name: str
    arm: str
    ops: int
    num_bytes: int = 4 * MIB
    warm_up: int = 0  # first operations, which are not measured
    # Mbit/s up and down of hosts with a different link during the block.
    links: dict[int, tuple[float, float]] = dataclasses.field(default_factory=dict)
    gap_s: float = 0.0  # computation of every rank before every operation
    # Instead of the gap: seconds by rank and operation.
    pauses: dict[int, list[float]] = dataclasses.field(default_factory=dict)
    step_s: float | None = (
        None  # all start each operation together, at least this far apart
    )
    healthy: tuple[int, ...] = (0, 1, 2, 3)  # ranks whose times count
    actions: tuple[Action, ...] = ()
    may_fail: bool = False  # True: an error ends the block, not the run
    # True: the bits of each result are compared, not only of the last.
    is_checked: bool = False
    fresh: bool = False  # True: on a new group
    check_every: int = 0  # Training: steps between two comparisons of parameters
    seed: int = 0  # Training: seed of the first parameters and the order of the data
    settle_s: float = 0.3  # silence before it, for data that is still queued
    net: str = ""  # Training: name of a model in models.py; empty: the task's model
    # Training such a model: steps between two evaluations of 1,000 pictures on each
    # rank; 0: never.
    evaluate_every: int = 0
    deadline_ms: float | None = None  # for the arm "fixed": deadline after the quorum

    def members(self) -> tuple[int, ...]:
        return ARMS[self.arm]

    def counted(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.members() if rank in self.healthy)

    def pause_s(self, rank: int, op: int) -> float:
        """Seconds that a rank computes before an operation."""
        pauses = self.pauses.get(rank)
        return self.gap_s if pauses is None else pauses[op]

    def notices(self) -> set[int]:
        """Operations whose begin the first healthy rank reports."""
        return {a.at_op for a in self.actions if a.at_op is not None}


def to_json(blocks: Iterable[Block]) -> str:
    """JSON for the ranks, without actions and links, but with the operations to
    report.
    """
    rows = []
    for block in blocks:
        row = dataclasses.asdict(block) | {"notices": sorted(block.notices())}
        del row["actions"], row["links"]
        rows.append(row)
    return json.dumps(rows)


def from_json(text: str) -> list[tuple[Block, set[int]]]:
    """The blocks for a rank, each with the operations to report."""
    found = []
    for row in json.loads(text):
        notices = set(row.pop("notices"))
        row["healthy"] = tuple(row["healthy"])
        row["pauses"] = {int(rank): p for rank, p in row["pauses"].items()}
        found.append((Block(**row), notices))
    return found


def links_of(block: Block, num_hosts: int) -> list[tuple[float, float]]:
    """Rates up and down of every host."""
    return [block.links.get(host, (MBIT, MBIT)) for host in range(num_hosts)]


def interleaved(blocks: Sequence[Block], repeats: int) -> list[Block]:
    """A B A B; names stay, so that all repeats of a block have one name.

    Each repeat has another seed, because without skipping all trainings would be equal.
    """
    return [
        dataclasses.replace(block, seed=repeat)
        for repeat in range(repeats)
        for block in blocks
    ]


# ---- lateness ----------------------------------------------------------------------


def late_in_share(ops: int, *, share: float, seconds: float, seed: int) -> list[float]:
    """A pause in exactly that share of the operations, placed by the seed."""
    pauses = [0.0] * ops
    for op in random.Random(seed).sample(range(ops), round(ops * share)):
        pauses[op] = seconds
    return pauses


def lognormal(ops: int, *, median_s: float, ratio: float, seed: int) -> list[float]:
    """Computation times whose 99th percentile is `ratio` times their median."""
    return jitter(ops, median_s=median_s, sigma=math.log(ratio) / _Z99, seed=seed)


def jitter(ops: int, *, median_s: float, sigma: float, seed: int) -> list[float]:
    """Computation times with a log-normal distribution; `sigma` is that of the
    logarithm.
    """
    draw = random.Random(seed)
    return [median_s * math.exp(sigma * draw.gauss(0, 1)) for _ in range(ops)]


def stalls(
    ops: int, *, median_s: float, ratio: float, share: float, seed: int
) -> list[float]:
    """Computation times that are equal, except a share that takes `ratio` times as
    long.
    """
    more = late_in_share(ops, share=share, seconds=(ratio - 1) * median_s, seed=seed)
    return [median_s + seconds for seconds in more]


def bound_s(num_bytes: int, ranks: int, mbit: float = MBIT) -> float:
    """Lower bound of a healthy allreduce: its bytes divided by the rate of TCP."""
    return common.bound_s("allreduce", num_bytes, ranks, mbit)


def estimate_s(blocks: Iterable[Block]) -> float:
    """Rough estimate of a run, for its deadline: a slow link slows all ranks."""
    total = 20.0
    for block in blocks:
        rates = [min(pair) for pair in block.links.values()]
        rates += [min(a.up_mbit, a.down_mbit) for a in block.actions if a.do == "link"]
        per_op = bound_s(block.num_bytes, len(block.members()), min([MBIT, *rates]))
        pauses = sum(max(op) for op in zip(*block.pauses.values(), strict=True))
        total += block.settle_s + pauses + sum(a.for_s for a in block.actions)
        total += block.ops * (per_op + block.gap_s + (block.step_s or 0.0) + 0.003)
        if block.evaluate_every:
            total += block.ops / block.evaluate_every * EVALUATION_S
    return total


def facts(block: Block) -> dict[str, Any]:
    """Facts of the block that the ranks' times do not show."""
    row = dataclasses.asdict(block)
    del row["pauses"], row["actions"]
    return row
