# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Size above which an allreduce with fewer bytes beats one with fewer messages.

Links have a latency in user space. The buckets of the lab let 96 KiB pass at once, so
sizes are larger, and a member owns all of a small sum up to 8 MiB instead of 16 KiB.
Then direct has 2 hops and its owner sends 3 times the bytes, and halving-doubling has 4
hops and sends half of the bytes twice.
"""

import math
import random
from collections.abc import Sequence

from aikido_torch.ordering import LinkCost
from aikido_torch.ordering._costs import collective_time
from benchmarks.ordering_cases import urgent_runs as runs
from benchmarks.ordering_cases.urgent_plan import Turn
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

NUM_HOSTS = 4
MBIT = 200.0
QUEUE_MS = 50.0
DELAYS_MS = (2.0, 8.0)  # of a cable; there are two cables between two hosts
DIRECT, HALVING, AUTO = ALGORITHMS = ("direct", "halving_doubling", "auto")
SIZES = tuple(1 << exponent for exponent in range(15, 21))
SHARD_BYTES = 8 << 20
ENV = {"AIKIDO_COLLECTIVES_MIN_SHARD_BYTES": str(SHARD_BYTES)}
# In a row, because TCP restarts with ten segments after an idle time of a link.
IN_A_ROW, WARM_UPS = 6, 3

Times = dict[str, list[float]]  # by algorithm: ms for each of SIZES


def crossing(
    sizes: Sequence[int], first: Sequence[float], then: Sequence[float]
) -> float:
    """The size at which `then` takes as long as `first`, which is faster below it.

    Between two sizes the ratio is assumed to be a power of the size. Raises CaseError
    if there is no such size.
    """
    ratios = [math.log(a / b) for a, b in zip(first, then, strict=True)]
    for i in range(1, len(sizes)):
        if ratios[i - 1] < 0 <= ratios[i]:
            share = -ratios[i - 1] / (ratios[i] - ratios[i - 1])
            return sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** share
    raise CaseError(
        f"one is faster at all sizes: {first[0] / then[0]:.2f} of the other's time at "
        f"{sizes[0]} bytes, {first[-1] / then[-1]:.2f} at {sizes[-1]}"
    )


def predicted(delay_ms: float) -> float:
    """The size by the formulas, in bytes."""
    link = LinkCost(alpha_s=2 * delay_ms / 1e3, beta_s=8e-6 / MBIT)

    def times(algorithm: str) -> list[float]:
        return [
            collective_time(
                algorithm,
                members=NUM_HOSTS,
                bytes=size,
                link=link,
                shard_bytes=SHARD_BYTES,
            )
            for size in SIZES
        ]

    return crossing(SIZES, times(DIRECT), times(HALVING))


def turns_of(repeats: int, seed: int) -> list[Turn]:
    """Each algorithm with each size several times in a row, in random order."""
    turns = [
        Turn(
            name=f"{algorithm} {size}",
            algorithm=algorithm,
            urgent_bytes=size,
            settle_s=0,
        )
        for size in SIZES
        for algorithm in ALGORITHMS
    ]
    draw = random.Random(seed)
    blocks = [turn for _ in range(repeats) for turn in draw.sample(turns, len(turns))]
    return [turn for turn in blocks for _ in range(IN_A_ROW)]


def measured(delay_ms: float, context: Context) -> Times:
    turns = turns_of(context.pick(2, 5), context.seed)
    with runs.lab_of(NUM_HOSTS, mbit=MBIT, queue_ms=QUEUE_MS, delay_ms=delay_ms) as lab:
        records = runs.run(lab, turns, context, env=ENV)
    records = [r for i, r in enumerate(records) if i % IN_A_ROW >= WARM_UPS]
    return {
        algorithm: [
            runs.median(r.urgent_ms for r in runs.named(records, f"{algorithm} {size}"))
            for size in SIZES
        ]
        for algorithm in ALGORITHMS
    }


def crossover(case: Case, context: Context) -> list[Row]:
    low, high = (measured(delay_ms, context) for delay_ms in DELAYS_MS)
    low_size, high_size = (crossing(SIZES, t[DIRECT], t[HALVING]) for t in (low, high))
    told = " and ".join(f"{predicted(delay) / 1024:.0f}" for delay in DELAYS_MS)
    best = [
        min(pair)
        for times in (low, high)
        for pair in zip(times[DIRECT], times[HALVING], strict=True)
    ]
    return [
        case.judge(
            0,
            value=high_size / 1024,
            reference=low_size / 1024,
            note=f"the formulas say {told} KiB",
        ),
        case.judge(1, value=sum(low[AUTO] + high[AUTO]), reference=sum(best)),
    ]


CASES = [
    Case(
        name="crossover",
        what=f"{NUM_HOSTS} hosts of {MBIT:g} Mbit/s, {2 * DELAYS_MS[0]:g} and then "
        f"{2 * DELAYS_MS[1]:g} ms apart: allreduce by direct and halving-doubling",
        bars=(
            Bar(
                what="size from which halving-doubling is faster, with more latency",
                of="that with less",
                bar=2.0,
                unit="KiB",
                better="higher",
            ),
            Bar(what="auto, all sizes", of="the faster one of each size", bar=1.05),
        ),
        measure=crossover,
    )
]
