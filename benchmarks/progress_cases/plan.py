# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The training loops of the cases as blocks of steps, and patterns of lateness. Pure.

The loop is like a user's: DistributedDataParallel, a small model on pictures of digits,
SGD with momentum, and an evaluation of 1,000 pictures on each rank every 10 steps.
"""

import dataclasses
import random
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.straggler_cases.plan import NUM_RANKS, Block

# Bytes of gradients of the models in models.py, by their names there.
SIZES = {"37k": 36_940, "129k": 128_920, "1.9m": 1_870_660, "8m": 7_981_392}
EVALUATE_EVERY = 10
WARM_UP = 5  # steps until DistributedDataParallel has its final buckets; not measured
LEARNING_RATE = 0.01
# Multiples of a step that are tried as a fixed deadline.
DEADLINES = (0.25, 1.0, 4.0)

STRICT, GLOO, SKIP, EXACT = "plain", "gloo", "skip", "exact"  # arms
STRICT_CALLS = "strict"  # the arm of op_rank.py for WaitAll()
# Names of arms in notes and files.
ARM_NAMES = {
    "plain": "strict",
    "gloo": "gloo",
    "skip": "skip",
    "exact": "rebalance",
}


def loop(arm: str, size: str, steps: int, **options: Any) -> Block:
    """The training loop in one arm; the block is named after the arm."""
    values: dict[str, Any] = {
        "name": ARM_NAMES.get(arm, arm),
        "arm": arm,
        "ops": steps,
        "num_bytes": SIZES[size],
        "net": size,
        "warm_up": WARM_UP,
        "evaluate_every": EVALUATE_EVERY,
        # A policy is judged with its learning in each run.
        "fresh": arm != GLOO,
    }
    return Block(**(values | options))


def hindsight(block: Block, step_s: float) -> list[Block]:
    """The block with each fixed deadline; `step_s` is the length of a usual step."""
    return [
        dataclasses.replace(
            block,
            name=f"fixed {multiple:g}",
            arm="fixed",
            deadline_ms=1e3 * multiple * step_s,
        )
        for multiple in DEADLINES
    ]


def in_turns(repeats: Sequence[Sequence[Block]]) -> list[Block]:
    """A B A B: the blocks of each repeat, with the repeat's number as their seed."""
    return [
        dataclasses.replace(block, seed=seed)
        for seed, blocks in enumerate(repeats)
        for block in blocks
    ]


# ---- lateness: seconds that a rank sleeps before each step ---------------------------

Pauses = dict[int, list[float]]


def one_pause(steps: int, *, seconds: float, seed: int) -> Pauses:
    """A random rank sleeps once, in the middle third of the run."""
    draw = random.Random(seed)
    pauses = [0.0] * steps
    pauses[draw.randrange(steps // 3, 2 * steps // 3)] = seconds
    return {draw.randrange(NUM_RANKS): pauses}


def every_nth(steps: int, *, rank: int, nth: int, seconds: float) -> Pauses:
    """One rank sleeps in every n-th step, except the first one."""
    return {
        rank: [seconds if step and step % nth == 0 else 0.0 for step in range(steps)]
    }


def slower(steps: int, *, rank: int, compute_s: float, more: float) -> Pauses:
    """Every rank computes for `compute_s`, and one of them longer by the share
    `more`.
    """
    return {
        each: [compute_s * (1 + (more if each == rank else 0.0))] * steps
        for each in range(NUM_RANKS)
    }


def late_by_steps(
    steps: int, *, ranks: Sequence[int], share: float, step_s: float, seed: int
) -> Pauses:
    """Each of those ranks is late in a random share of steps, by 1 to 10 steps."""
    found: Pauses = {}
    for rank in ranks:
        draw = random.Random(seed * NUM_RANKS + rank)
        found[rank] = [0.0] * steps
        for step in draw.sample(range(steps), round(steps * share)):
            found[rank][step] = draw.uniform(1.0, 10.0) * step_s
    return found


def rotating(steps: int, *, nth: int, seconds: float) -> Pauses:
    """In every n-th step one rank is late, each time the next one."""
    found: Pauses = {rank: [0.0] * steps for rank in range(NUM_RANKS)}
    for turn, step in enumerate(range(nth, steps, nth)):
        found[turn % NUM_RANKS][step] = seconds
    return found


def usual_pause_s(pauses: Pauses) -> float:
    """Seconds that a rank sleeps before most steps: its computation, without
    lateness.
    """
    return statistics.median(pause for own in pauses.values() for pause in own)
