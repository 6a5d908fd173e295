# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases in which one uplink is slow at times, or shared with other streams."""

import math
import statistics

from benchmarks.lab import on_off_flows
from benchmarks.progress_cases import plan
from benchmarks.progress_cases.figures import Arms, Figures
from benchmarks.progress_cases.measuring import (
    LAB,
    interleaved,
    place,
    progress_bar,
    progress_row,
    train,
)
from benchmarks.straggler_cases import runs
from benchmarks.straggler_cases.case import Bar, Case, Context, Row
from benchmarks.straggler_cases.links import measure
from benchmarks.straggler_cases.plan import BAD, MIB, NUM_RANKS, Action, Block

BAD_MBIT, BAD_S, PERIOD_S = 10.0, 2.0, 10.0
# First slow time: also short runs have slow times in a fifth of their time.
FIRST_S = 4.0
NOISE = 2.0  # standard errors of the mean final accuracy of the undisturbed run
COMPUTE_S, SHARED_BYTES = 0.1, 4 * MIB


def bad_times(until_s: float) -> tuple[Action, ...]:
    """The uplink of one host is slow for 2 s in every 10 s."""
    actions: list[Action] = []
    at_s = FIRST_S
    while at_s < until_s:
        actions += [
            Action(do="link", after_s=at_s, up_mbit=BAD_MBIT),
            Action(do="link", after_s=at_s + BAD_S),
        ]
        at_s += PERIOD_S
    return tuple(actions)


def bad_uplink(case: Case, context: Context) -> list[Row]:
    steps, repeats = context.pick(120, 200), context.pick(3, 5)
    bad = bad_times(600.0)
    size = "1.9m"
    blocks = [
        plan.loop(plan.STRICT, size, steps, name="undisturbed"),
        plan.loop(plan.STRICT, size, steps, actions=bad),
        plan.loop(plan.SKIP, size, steps, actions=bad),
    ]
    if context.is_full:
        blocks.append(plan.loop(plan.GLOO, size, steps, actions=bad))
    with place(LAB) as lab:
        arms = Arms(train(lab, interleaved(blocks, repeats), context))

    def rate(name: str) -> float:
        return arms.median(name, lambda run: run.steps_per_second)

    skip, strict = after_same_time(arms.runs("skip"), arms.runs("strict"))
    final = [run.accuracy or 0.0 for run in arms.runs("undisturbed")]
    return [
        progress_row(case, 0, arms, reference="strict"),
        progress_row(case, 1, arms, reference="undisturbed", is_first=False),
        case.judge(2, value=rate("skip"), reference=rate("undisturbed")),
        case.judge(3, value=skip, reference=strict),
        case.judge(
            4,
            value=statistics.fmean(run.accuracy or 0.0 for run in arms.runs("skip")),
            reference=statistics.fmean(final) - noise(final),
            note=f"undisturbed {statistics.fmean(final):.3f}, noise {noise(final):.3f}",
        ),
    ]


def after_same_time(ours: list[Figures], theirs: list[Figures]) -> tuple[float, float]:
    """Mean accuracies when the faster of two runs with equal seeds has ended."""
    pairs = []
    for own, other in zip(ours, theirs, strict=True):
        end = min(own.curve[-1][0], other.curve[-1][0])
        pairs.append((own.accuracy_after(end), other.accuracy_after(end)))
    own_mean, other_mean = (statistics.fmean(side) for side in zip(*pairs, strict=True))
    return own_mean, other_mean


def noise(values: list[float]) -> float:
    """Difference that a mean of that many runs may have by chance."""
    if len(values) < 2:
        return 0.0
    return NOISE * statistics.stdev(values) / math.sqrt(len(values))


def shared_uplink(case: Case, context: Context) -> list[Row]:
    """Like `cross-traffic` of straggler.py, but free running and with computation."""
    steps, repeats = context.pick(40, 100), context.pick(3, 5)
    turns = []
    for repeat in range(repeats):
        flows = tuple(
            Action(do="flow", after_s=e.at_s, to=e.to, for_s=e.for_s or 0.0)
            for flow in range(3)
            for e in on_off_flows(
                BAD,
                NUM_RANKS,
                seed=3 * (context.seed * repeats + repeat) + flow,
                until_s=0.8 * steps,
            )
        )
        turns.append(
            [
                Block(
                    name=plan.ARM_NAMES[arm],
                    arm=arm,
                    ops=steps,
                    num_bytes=SHARED_BYTES,
                    warm_up=plan.WARM_UP,
                    gap_s=COMPUTE_S,
                    actions=flows,
                    fresh=True,
                )
                for arm in (plan.STRICT, plan.SKIP)
            ]
        )
    with runs.lab_of(spare=1) as lab:
        found = measure(lab, plan.in_turns(turns), context, program=runs.STEP_RANK)
    return [progress_row(case, 0, Arms(found), reference="strict")]


CASES = [
    Case(
        name="bad-uplink",
        what="one uplink at 10 Mbit/s for 2 s in every 10 s, 1871 KB",
        bars=(
            progress_bar(1.20, "strict aikido"),
            progress_bar(0.92, "undisturbed strict", "progress, undisturbed"),
            progress_bar(0.95, "undisturbed strict", "steps per second"),
            Bar(
                what="accuracy after the same time",
                of="strict aikido",
                bar=1.0,
                unit="",
                better="higher",
            ),
            Bar(
                what="final accuracy",
                of="undisturbed strict less noise",
                bar=1.0,
                unit="",
                better="higher",
            ),
        ),
        measure=bad_uplink,
    ),
    Case(
        name="shared-uplink",
        what="three on/off flows in one uplink, 4 MB allreduce, 100 ms of computation",
        bars=(progress_bar(1.12, "strict aikido"),),
        measure=shared_uplink,
    ),
]
