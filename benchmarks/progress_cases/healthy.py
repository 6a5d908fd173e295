# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases without slow ranks: a policy must cost nothing."""

import functools
from dataclasses import dataclass

from benchmarks.progress_cases import plan
from benchmarks.progress_cases.figures import Arms
from benchmarks.progress_cases.measuring import (
    HOST,
    LAB,
    interleaved,
    place,
    progress_bar,
    progress_row,
    train,
)
from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import Bar, Case, Context, Row
from benchmarks.straggler_cases.links import measure
from benchmarks.straggler_cases.plan import MIB, Block


@dataclass(frozen=True)
class Length:
    """Steps of a run in the quick and in the full form.

    Attributes:
        quick: steps of the quick form.
        full: steps of the full form.
        gloo_share: share of these steps that Gloo does, which is not judged.
        repeats: repeats of the quick form. Short runs differ by more than the bar.
    """

    quick: int
    full: int = 200
    gloo_share: float = 1.0
    repeats: int = 3


LENGTHS = {
    (LAB, "37k"): Length(200, repeats=9),
    (LAB, "129k"): Length(200, repeats=7),
    (LAB, "1.9m"): Length(100, gloo_share=0.35),
    (LAB, "8m"): Length(36, gloo_share=0.35),
    (HOST, "37k"): Length(200, repeats=9),
    (HOST, "129k"): Length(200, repeats=9),
    (HOST, "1.9m"): Length(200),
    (HOST, "8m"): Length(100, repeats=9),
}
BARS = (
    progress_bar(0.98, "strict aikido"),
    progress_bar(0.98, "strict aikido", "steps per second"),
    Bar(what="share", of="1", bar=0.99, unit="", better="higher"),
)
BBR_OPS = {1: 10, 4: 6, 16: 4}  # operations of a block, by MiB


def healthy(case: Case, context: Context, where: str, size: str) -> list[Row]:
    length = LENGTHS[where, size]
    steps = context.pick(length.quick, length.full)
    repeats = max(length.repeats, context.pick(3, 5))
    blocks = [
        plan.loop(plan.STRICT, size, steps),
        plan.loop(plan.SKIP, size, steps),
        plan.loop(plan.GLOO, size, round(steps * length.gloo_share)),
    ]
    with place(where) as lab:
        arms = Arms(train(lab, interleaved(blocks, repeats), context))

    def rate(name: str) -> float:
        return arms.median(name, lambda run: run.steps_per_second)

    return [
        progress_row(case, 0, arms, reference="strict"),
        case.judge(1, value=rate("skip"), reference=rate("strict"), gloo=rate("gloo")),
        case.judge(2, value=arms.median("skip", lambda run: run.share), reference=1.0),
    ]


def bbr(case: Case, context: Context) -> list[Row]:
    """Strict calls in a row, on hosts that use bbr."""
    repeats = context.pick(3, 6)
    blocks = [
        Block(
            name=f"{arm} {mib} MiB",
            arm=arm,
            ops=ops,
            num_bytes=mib * MIB,
            warm_up=1,
        )
        for mib, ops in BBR_OPS.items()
        for arm in (plan.STRICT_CALLS, plan.GLOO)
    ]
    with runs.lab_of(tcp="bbr") as lab:
        found = measure(lab, interleaved(blocks, repeats), context)
    rows = []
    for number, mib in enumerate(BBR_OPS):
        ours, gloo = (
            records.samples(found, f"{arm} {mib} MiB")
            for arm in (plan.STRICT_CALLS, plan.GLOO)
        )
        rows.append(
            case.judge(
                number,
                value=ours.median,
                reference=gloo.median,
                gloo=gloo.median,
                note=f"p95 {ours.p95:.4g} ms, Gloo's {gloo.p95:.4g}",
            )
        )
    return rows


def _case(where: str, size: str) -> Case:
    hosts = "four hosts at 200 Mbit/s" if where == LAB else "one host"
    kib = plan.SIZES[size] / 1e3
    return Case(
        name=f"healthy-{where}-{size}",
        what=f"nobody is slow, {kib:.0f} KB of gradients, {hosts}",
        bars=BARS,
        measure=functools.partial(healthy, where=where, size=size),
    )


CASES = [
    *(_case(where, size) for where, size in LENGTHS),
    Case(
        name="bbr",
        what="strict allreduce, nobody is slow, hosts use bbr",
        bars=tuple(
            Bar(what=f"median op of {mib} MiB", of="Gloo", bar=1.03) for mib in BBR_OPS
        ),
        measure=bbr,
    ),
]
