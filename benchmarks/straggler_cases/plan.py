# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What the ranks of a case do, and what is done to them: plain values, no torch.

A run is a list of blocks, done one after the other by the same processes, so that ours,
the comparison values and Gloo take turns under the same conditions. The ranks get the
blocks as JSON; links and actions stay with the process that started them.
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
BAD = 3  # the rank or host that something is wrong with
MBIT = 200.0
MIB = 1 << 20
BATCH = 32  # samples of one rank in a training step
EVALUATION_S = 0.2  # at most, of four ranks at the same time on two cores
PLAN_FILE = "plan.json"  # in the folder of a run
# z of the 99th percentile of the normal distribution.
_Z99 = 2.3263478740408408

# Who takes part in an arm; what it calls is in op_rank.py.
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
    """Something that is done to a host or a rank while a block runs.

    Counted from the start of the block, or from the moment at which the first healthy
    rank begins operation `at_op` (the number of operations: when it has ended them).
    """

    do: str  # link, cut, heal, stop, continue, kill, flow
    target: int = BAD
    at_op: int | None = None
    after_s: float = 0.0
    up_mbit: float = MBIT
    down_mbit: float = MBIT
    to: int | None = None  # flow: the receiving host
    for_s: float = 0.0  # flow


@dataclass(frozen=True, kw_only=True)
class Block:
    """So many operations, or training steps, of one arm in a row."""

    name: str
    arm: str
    ops: int
    num_bytes: int = 4 * MIB
    warm_up: int = 0  # the first ones, which are not measured
    # Mbit/s up and down of hosts whose link is not the usual one during the block.
    links: dict[int, tuple[float, float]] = dataclasses.field(default_factory=dict)
    gap_s: float = 0.0  # what every rank computes before every operation
    # Instead of the gap: seconds by rank and operation.
    pauses: dict[int, list[float]] = dataclasses.field(default_factory=dict)
    step_s: float | None = (
        None  # all start each operation together, as far apart at least
    )
    healthy: tuple[int, ...] = (0, 1, 2, 3)  # whose times count
    actions: tuple[Action, ...] = ()
    may_fail: bool = False  # then an error ends the block, not the run
    is_checked: bool = False  # the bits of each result are compared, not of the last
    fresh: bool = False  # on a group that has seen nothing yet
    check_every: int = 0  # training: parameters are compared so often
    seed: int = 0  # training: of the first parameters and the order of the data
    settle_s: float = 0.3  # of silence before it, for what is still queued
    net: str = ""  # training: the name of a net in models.py; empty: the task's model
    # Training a net: each rank evaluates 1,000 pictures every so many steps; 0: never.
    evaluate_every: int = 0
    deadline_ms: float | None = None  # of the arm "fixed", after the quorum

    def members(self) -> tuple[int, ...]:
        return ARMS[self.arm]

    def counted(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.members() if rank in self.healthy)

    def pause_s(self, rank: int, op: int) -> float:
        """How long that rank computes before that operation."""
        pauses = self.pauses.get(rank)
        return self.gap_s if pauses is None else pauses[op]

    def notices(self) -> set[int]:
        """Operations that the first healthy rank tells of when it begins them."""
        return {a.at_op for a in self.actions if a.at_op is not None}


def to_json(blocks: Iterable[Block]) -> str:
    """For the ranks: what is done to them is not among it, but when they tell."""
    rows = []
    for block in blocks:
        row = dataclasses.asdict(block) | {"notices": sorted(block.notices())}
        del row["actions"], row["links"]
        rows.append(row)
    return json.dumps(rows)


def from_json(text: str) -> list[tuple[Block, set[int]]]:
    """The blocks as a rank has them, each with the operations that it tells of."""
    found = []
    for row in json.loads(text):
        notices = set(row.pop("notices"))
        row["healthy"] = tuple(row["healthy"])
        row["pauses"] = {int(rank): p for rank, p in row["pauses"].items()}
        found.append((Block(**row), notices))
    return found


def links_of(block: Block, num_hosts: int) -> list[tuple[float, float]]:
    """Up and down, of every host."""
    return [block.links.get(host, (MBIT, MBIT)) for host in range(num_hosts)]


def interleaved(blocks: Sequence[Block], repeats: int) -> list[Block]:
    """A B A B; the names stay, so that a block's repeats are found by it.

    Each repeat has another seed: where nothing is skipped a training would be the same.
    """
    return [
        dataclasses.replace(block, seed=repeat)
        for repeat in range(repeats)
        for block in blocks
    ]


# ---- Lateness ----------------------------------------------------------------------


def late_in_share(ops: int, *, share: float, seconds: float, seed: int) -> list[float]:
    """A pause in exactly that share of the operations, spread by the seed."""
    pauses = [0.0] * ops
    for op in random.Random(seed).sample(range(ops), round(ops * share)):
        pauses[op] = seconds
    return pauses


def lognormal(ops: int, *, median_s: float, ratio: float, seed: int) -> list[float]:
    """Computation times whose 99th percentile is `ratio` times their median."""
    return jitter(ops, median_s=median_s, sigma=math.log(ratio) / _Z99, seed=seed)


def jitter(ops: int, *, median_s: float, sigma: float, seed: int) -> list[float]:
    """Computation times with a log-normal distribution; `sigma` is of the logarithm."""
    draw = random.Random(seed)
    return [median_s * math.exp(sigma * draw.gauss(0, 1)) for _ in range(ops)]


def stalls(
    ops: int, *, median_s: float, ratio: float, share: float, seed: int
) -> list[float]:
    """The same, where nearly all are equal and a share takes `ratio` times as long."""
    more = late_in_share(ops, share=share, seconds=(ratio - 1) * median_s, seed=seed)
    return [median_s + seconds for seconds in more]


def bound_s(num_bytes: int, ranks: int, mbit: float = MBIT) -> float:
    """What a healthy allreduce takes at least: its bytes by the rate that TCP gets."""
    return common.bound_s("allreduce", num_bytes, ranks, mbit)


def estimate_s(blocks: Iterable[Block]) -> float:
    """Roughly how long a run takes, for its deadline: a slow link slows all."""
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
    """Without what the ranks' times show."""
    row = dataclasses.asdict(block)
    del row["pauses"], row["actions"]
    return row
