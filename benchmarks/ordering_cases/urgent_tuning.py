# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The credit after all links have become slower, beside credits that are fixed."""

from dataclasses import dataclass

from benchmarks.lab import Lab
from benchmarks.ordering_cases import urgent_runs as runs
from benchmarks.ordering_cases.urgent_plan import Turn
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

NUM_HOSTS = 4
FAST_MBIT, SLOW_MBIT = 500.0, 100.0
QUEUE_MS = 50.0
FAST_OPS, LEARN_OPS = 15, 50
# Half of what a link at the lower rate carries in the residence, and up to what one at
# the higher rate carries in 6 ms.
FIXED_BYTES = (12 << 10, 24 << 10, 48 << 10, 96 << 10, 384 << 10)
VARIABLE = "AIKIDO_TRANSPORT_CREDIT_BYTES"

OP = Turn(
    name="op",
    num_bulk=2,
    bulk_bytes=400_000,
    urgent_bytes=64_000,
    priority=10,
    after_s=0.02,
    settle_s=0.0,
)


@dataclass(frozen=True)
class Seen:
    """Medians, ms."""

    urgent_ms: float
    all_ms: float


def measure(lab: Lab, credit: int, ops: int, context: Context) -> Seen:
    """After the rate has dropped and LEARN_OPS operations; `credit` 0: its own."""
    for host in range(NUM_HOSTS):
        lab.change(host, up_mbit=FAST_MBIT, down_mbit=FAST_MBIT)
    turns = [OP] * (FAST_OPS + LEARN_OPS + ops)
    env = {VARIABLE: str(credit)}
    records = runs.run(lab, turns, context, rates={FAST_OPS: SLOW_MBIT}, env=env)
    counted = records[FAST_OPS + LEARN_OPS :]
    return Seen(
        runs.median(r.urgent_ms for r in counted),
        runs.median(r.all_ms for r in counted),
    )


def rate_drop(case: Case, context: Context) -> list[Row]:
    ops = context.pick(30, 100)
    with runs.lab_of(NUM_HOSTS, mbit=FAST_MBIT, queue_ms=QUEUE_MS) as lab:
        own = measure(lab, 0, ops, context)
        fixed = {credit: measure(lab, credit, ops, context) for credit in FIXED_BYTES}
    text = ", ".join(
        f"{credit >> 10} KiB {seen.urgent_ms:.1f} and {seen.all_ms:.1f}"
        for credit, seen in fixed.items()
    )
    return [
        case.judge(
            0,
            value=own.urgent_ms,
            reference=min(seen.urgent_ms for seen in fixed.values()),
            note=f"fixed: {text} ms",
        ),
        case.judge(
            1,
            value=own.all_ms,
            reference=min(seen.all_ms for seen in fixed.values()),
        ),
    ]


CASES = [
    Case(
        name="rate-drop",
        what=f"{NUM_HOSTS} hosts, {FAST_MBIT:g} and then {SLOW_MBIT:g} Mbit/s; 64 KB "
        f"behind 2 x 400 KB, after {LEARN_OPS} of them",
        bars=(
            Bar(what="urgent allreduce", of="the best fixed credit", bar=1.05),
            Bar(what="all of it", of="the best fixed credit", bar=1.05),
        ),
        measure=rate_drop,
    )
]
