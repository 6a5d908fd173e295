# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The limit of bytes in flight after all links have become slower, beside fixed
limits.
"""

from dataclasses import dataclass

from benchmarks.lab import Lab
from benchmarks.ordering_cases import urgent_runs as runs
from benchmarks.ordering_cases.urgent_plan import Turn
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

NUM_HOSTS = 4
FAST_MBIT, SLOW_MBIT = 500.0, 100.0
QUEUE_MS = 50.0
FAST_OPS, LEARN_OPS = 15, 50
# From half of the bytes that a link at the lower rate carries in the residence time, to
# the bytes that a link at the higher rate carries in 6 ms.
FIXED_BYTES = (12 << 10, 24 << 10, 48 << 10, 96 << 10, 384 << 10)
OWN = 0  # the limit that aikido chooses itself
VARIABLE = "AIKIDO_TRANSPORT_CREDIT_BYTES"
ROUNDS = 2

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
    """Medians in ms."""

    urgent_ms: float
    all_ms: float


def run(lab: Lab, credit: int, ops: int, context: Context) -> list[runs.Record]:
    """Operations of new ranks, from LEARN_OPS operations after the rate has dropped."""
    for host in range(NUM_HOSTS):
        lab.change(host, up_mbit=FAST_MBIT, down_mbit=FAST_MBIT)
    turns = [OP] * (FAST_OPS + LEARN_OPS + ops)
    env = {VARIABLE: str(credit)}
    records = runs.run(lab, turns, context, rates={FAST_OPS: SLOW_MBIT}, env=env)
    return records[FAST_OPS + LEARN_OPS :]


def measured(lab: Lab, ops: int, context: Context) -> dict[int, Seen]:
    """Medians by limit, measured in turns with alternating order; `ops` of each
    in all.
    """
    credits = [OWN, *FIXED_BYTES]
    records: dict[int, list[runs.Record]] = {credit: [] for credit in credits}
    for number in range(ROUNDS):
        for credit in credits if number % 2 == 0 else reversed(credits):
            records[credit] += run(lab, credit, ops // ROUNDS, context)
    return {
        credit: Seen(
            runs.median(r.urgent_ms for r in found),
            runs.median(r.all_ms for r in found),
        )
        for credit, found in records.items()
    }


def rate_drop(case: Case, context: Context) -> list[Row]:
    with runs.lab_of(NUM_HOSTS, mbit=FAST_MBIT, queue_ms=QUEUE_MS) as lab:
        fixed = measured(lab, context.pick(30, 100), context)
    own = fixed.pop(OWN)
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
