# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases in which the computation of ranks is late, and links are healthy."""

import functools
import statistics
from collections.abc import Callable

from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import Bar, Case, Context, Row
from benchmarks.straggler_cases.links import REST, learning, measure, spreads
from benchmarks.straggler_cases.plan import (
    BAD,
    MBIT,
    MIB,
    NUM_RANKS,
    Block,
    bound_s,
    interleaved,
    late_in_share,
    lognormal,
    stalls,
)

LATE_S = 0.3
TOGETHER = 0.0  # each step starts when all ranks have ended the step before
MEDIAN_S = 0.2  # median of the computation
SPREADS = (1.0, 1.5, 3.0)  # ratios p99/p50 of the computation
# With this value and a ratio of 3, all ranks together take 23 % longer on Gloo, and
# their median step does not change.
STALLS = 0.075
UNEVEN = tuple(
    Bar(what=f"{what} step at {ratio:g}", of="that at 1", bar=bar)
    for ratio in SPREADS[1:]
    for what, bar in (("mean", 1.03), ("p95", 1.05))
)


def late_share(case: Case, context: Context, share: float, reference: str) -> list[Row]:
    """All ranks start a step together; in a share of the steps one rank is late."""
    ops, repeats = context.pick(15, 40), context.pick(2, 4)
    pauses = late_in_share(ops, share=share, seconds=LATE_S, seed=context.seed)
    late = {BAD: pauses}
    less = late_in_share(ops // 2, share=share, seconds=LATE_S, seed=context.seed)
    blocks = learning(("skip", reference)) + (
        interleaved(
            [
                Block(name="healthy", arm=reference, ops=ops // 2, step_s=TOGETHER),
                Block(
                    name="ours",
                    arm="skip",
                    ops=ops,
                    step_s=TOGETHER,
                    pauses=late,
                    healthy=REST,
                ),
                Block(
                    name="gloo",
                    arm="gloo",
                    ops=ops // 2,
                    step_s=TOGETHER,
                    pauses={BAD: less},
                    healthy=REST,
                ),
            ],
            repeats,
        )
    )
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    ours, healthy = (records.samples(found, name) for name in ("ours", "healthy"))
    return [
        case.judge(
            0,
            value=records.mean(ours.values),
            reference=records.mean(healthy.values),
            gloo=records.mean(records.samples(found, "gloo").values),
            note=f"median {ours.median:.4g} ms; "
            + records.evidence(records.named(found, "ours")),
            samples=[round(v, 1) for v in ours.values],
            late=pauses,
            **spreads(ours=ours, healthy=healthy),
        )
    ]


def late_every(case: Case, context: Context) -> list[Row]:
    return late_share(case, context, 1.0, "strict3")


def late_fifth(case: Case, context: Context) -> list[Row]:
    return late_share(case, context, 0.2, "strict")


# Function of ops, median_s, ratio and seed: seconds of computation.
Times = Callable[..., list[float]]


def uneven(case: Case, context: Context, times_of: Times) -> list[Row]:
    """Computation of every rank is uneven by the ratios, and a late rank catches up.

    The bars are for all ratios except the first, which is even: two for each.
    """
    steps, repeats = context.pick(60, 120), context.pick(1, 2)
    blocks = [
        Block(
            name=f"{arm} {ratio:g}",
            arm=arm,
            ops=steps,
            warm_up=8,
            pauses={
                rank: times_of(
                    steps,
                    median_s=MEDIAN_S,
                    ratio=ratio,
                    seed=context.seed * NUM_RANKS + rank,
                )
                for rank in range(NUM_RANKS)
            },
        )
        for ratio in SPREADS
        for arm in ("skip", "gloo")
    ]
    with runs.lab_of() as lab:
        found = measure(
            lab, interleaved(blocks, repeats), context, program=runs.STEP_RANK
        )

    def times(arm: str, ratio: float):
        blocks = records.named(found, f"{arm} {ratio:g}")
        return records.Samples(tuple(t for r in blocks for t in records.step_times(r)))

    rows = []
    even = times("skip", SPREADS[0])
    for number, ratio in enumerate(SPREADS[1:]):
        ours, gloo = times("skip", ratio), times("gloo", ratio)
        mine = records.named(found, f"skip {ratio:g}")
        replayed = sum(r["replayed"] for m in mine for r in m.by_rank.values())
        third, last = (
            1e3 * (mean_of_nth(mine[0].block, nth) - MEDIAN_S) for nth in (2, 3)
        )
        note = (
            f"on average the third of four computes {third:.1f} ms longer than at "
            f"{SPREADS[0]:g}, the last one {last:.1f}; {replayed} steps replayed; "
            + records.evidence(mine)
        )
        for offset, pick in enumerate((lambda s: records.mean(s.values), _p95)):
            rows.append(
                case.judge(
                    2 * number + offset,
                    value=pick(ours),
                    reference=pick(even),
                    gloo=pick(gloo),
                    note=note if offset == 0 else "",
                )
            )
    return rows


def spread(case: Case, context: Context) -> list[Row]:
    return uneven(case, context, lognormal)


def tail(case: Case, context: Context) -> list[Row]:
    return uneven(case, context, functools.partial(stalls, share=STALLS))


def mean_of_nth(block: Block, nth: int) -> float:
    """Mean seconds after which all but the last ranks have computed.

    `nth` counts from 0. Unless a rank is a step ahead, no rank goes on before the
    quorum, which is more than half of the ranks, has contributed.
    """
    pauses = [block.pauses[rank] for rank in block.members()]
    return statistics.fmean(
        sorted(own[step] for own in pauses)[nth]
        for step in range(block.warm_up, block.ops)
    )


def _p95(samples: records.Samples) -> float:
    return samples.p95


def exact_late(case: Case, context: Context) -> list[Row]:
    ops, num_bytes = context.pick(10, 30), 4 * MIB
    late = {BAD: [LATE_S] * ops}
    blocks = learning(("exact", "gloo")) + interleaved(
        [
            Block(name=arm, arm=arm, ops=ops, step_s=TOGETHER, pauses=late)
            for arm in ("exact", "gloo")
        ],
        2,
    )
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    # From the moment when the healthy ranks call.
    values = {
        arm: records.median(
            [
                t
                for record in records.named(found, arm)
                for t in records.op_times(record, ranks=REST)
            ]
        )
        for arm in ("exact", "gloo")
    }
    once_s = num_bytes * 8e-6 / MBIT
    return [
        case.judge(
            0,
            value=values["exact"],
            reference=1e3 * (LATE_S + 1.10 * once_s),
            gloo=values["gloo"],
            note=f"S/B is {1e3 * once_s:.0f} ms, without a late rank "
            f"{1e3 * bound_s(num_bytes, NUM_RANKS):.0f} ms are the least",
        )
    ]


def exact_healthy(case: Case, context: Context) -> list[Row]:
    ops, repeats = context.pick(10, 30), context.pick(3, 6)
    blocks = learning(("exact", "strict")) + interleaved(
        [
            Block(name=arm, arm=arm, ops=n, warm_up=1)
            for arm, n in (("exact", ops), ("strict", ops), ("gloo", 4))
        ],
        repeats,
    )
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    ours, strict = (records.samples(found, name) for name in ("exact", "strict"))
    return [
        case.judge(
            0,
            value=ours.median,
            reference=strict.median,
            gloo=records.samples(found, "gloo").median,
            **spreads(ours=ours, healthy=strict),
        )
    ]


def exact_half_rate(case: Case, context: Context) -> list[Row]:
    ops = context.pick(10, 30)
    half = {BAD: (MBIT / 2, MBIT / 2)}
    blocks = learning(("exact",)) + interleaved(
        [
            Block(name="healthy", arm="exact", ops=ops, warm_up=2),
            Block(name="half", arm="exact", ops=ops, warm_up=4, links=half),
            Block(name="gloo", arm="gloo", ops=4, links=half),
        ],
        2,
    )
    with runs.lab_of() as lab:
        found = measure(lab, blocks, context)
    ours, healthy = (records.samples(found, name) for name in ("half", "healthy"))
    return [
        case.judge(
            0,
            value=ours.median,
            reference=healthy.median,
            gloo=records.samples(found, "gloo").median,
            **spreads(ours=ours, healthy=healthy),
        )
    ]


CASES = [
    Case(
        name="late-every",
        what="one rank 300 ms late in every step; steps start together",
        bars=(Bar(what="mean op", of="3 healthy ranks", bar=1.08),),
        measure=late_every,
    ),
    Case(
        name="late-fifth",
        what="one rank 300 ms late in a random fifth of the steps",
        bars=(Bar(what="mean op", of="4 healthy ranks", bar=1.15),),
        measure=late_fifth,
    ),
    Case(
        name="tail",
        what="computation of 200 ms, 7.5 % of it 1.5 or 3 times as long, on every rank",
        bars=UNEVEN,
        measure=tail,
    ),
    Case(
        name="spread",
        what="computation of 200 ms, lognormal with p99/p50 of 1.5 or 3, on every rank",
        bars=UNEVEN,
        measure=spread,
    ),
    Case(
        name="exact-late",
        what="WaitAll(rebalance=True), one rank 300 ms late",
        bars=(Bar(what="median op", of="300 ms + 1.10 S/B", bar=1.0),),
        measure=exact_late,
    ),
    Case(
        name="exact-healthy",
        what="WaitAll(rebalance=True), nobody is late",
        bars=(Bar(what="median op", of="WaitAll()", bar=1.01),),
        measure=exact_healthy,
    ),
    Case(
        name="exact-half-rate",
        what="WaitAll(rebalance=True), one link at half rate",
        bars=(Bar(what="median op", of="healthy", bar=1.45),),
        measure=exact_half_rate,
    ),
]
