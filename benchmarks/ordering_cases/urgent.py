# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""An urgent allreduce after others that are not urgent."""

import dataclasses
import functools
import random

from benchmarks.lab import Lab
from benchmarks.ordering_cases import urgent_runs as runs
from benchmarks.ordering_cases.urgent_plan import NUM_BULK, Turn
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

NUM_HOSTS = 4
MBIT = 200.0
PRIORITY = 10
FIRST_S, LAST_S = 0.05, 0.45  # from bulk to the urgent call: links are full

ALONE = Turn(name="alone", priority=PRIORITY)
BEHIND = Turn(name="behind", num_bulk=NUM_BULK, priority=PRIORITY)
FIFO = Turn(name="fifo", num_bulk=NUM_BULK)
GLOO = Turn(name="gloo", num_bulk=NUM_BULK, backend="gloo")


ARMS = ((ALONE, BEHIND), (FIFO, GLOO))  # each arm has ranks of its own
HALVES = 2


def turns_of(repeats: int, seed: int) -> list[list[Turn]]:
    """Turns for each of ARMS. All arms of a repeat have the same delay before the
    urgent call.

    In the arms of comparison values no call has a priority, so aikido behaves as
    without priorities.
    """
    draw = random.Random(seed)
    turns: list[list[Turn]] = [[] for _ in ARMS]
    for _ in range(repeats):
        after_s = draw.uniform(FIRST_S, LAST_S)
        for arm, found in zip(ARMS, turns, strict=True):
            found += [
                dataclasses.replace(turn, after_s=after_s if turn.num_bulk else 0.0)
                for turn in arm
            ]
    return turns


def measured(lab: Lab, repeats: int, context: Context) -> list[runs.Record]:
    """Records in the order A B A B, without the first turn of each, which connects and
    learns.
    """
    records = []
    for half in range(HALVES):
        for arm, turns in zip(
            ARMS, turns_of(repeats, context.seed + half), strict=True
        ):
            records += runs.run(lab, turns, context)[len(arm) :]
    return records


def behind_bulk(case: Case, context: Context, *, queue_ms: float) -> list[Row]:
    with runs.lab_of(NUM_HOSTS, mbit=MBIT, queue_ms=queue_ms) as lab:
        records = measured(lab, 1 + context.pick(4, 12), context)
    urgent = {
        turn.name: sorted(r.urgent_ms for r in runs.named(records, turn.name))
        for turn in (ALONE, BEHIND, FIFO, GLOO)
    }
    whole = {
        turn.name: runs.median(r.all_ms for r in runs.named(records, turn.name))
        for turn in (BEHIND, FIFO, GLOO)
    }
    behind = urgent[BEHIND.name]
    return [
        case.judge(
            0,
            value=runs.median(behind),
            reference=runs.median(urgent[ALONE.name]),
            gloo=runs.median(urgent[GLOO.name]),
            note=f"{behind[0]:.1f} to {behind[-1]:.1f} ms; "
            f"{runs.median(urgent[FIFO.name]):.0f} ms without a priority",
        ),
        case.judge(
            1,
            value=whole[BEHIND.name],
            reference=whole[FIFO.name],
            gloo=whole[GLOO.name],
        ),
    ]


CASES = [
    Case(
        name=f"behind-bulk-{queue_ms}",
        what=f"{NUM_HOSTS} hosts of {MBIT:g} Mbit/s, queues of {queue_ms} ms; 250 KB "
        "behind 8 x 2 MB that are under way",
        bars=(
            Bar(what="urgent allreduce", of="alone", bar=bar),
            Bar(what="all of it", of="all without a priority", bar=1.02),
        ),
        measure=functools.partial(behind_bulk, queue_ms=float(queue_ms)),
    )
    for queue_ms, bar in ((10, 1.35), (50, 1.6))
]
