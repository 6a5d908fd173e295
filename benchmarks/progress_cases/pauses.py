# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases in which one rank pauses now and then, and is healthy otherwise."""

import functools
import statistics

from benchmarks.progress_cases import plan
from benchmarks.progress_cases.figures import Arms, after_pause
from benchmarks.progress_cases.measuring import (
    LAB,
    interleaved,
    place,
    progress_bar,
    progress_row,
    train,
    usual_step_s,
)
from benchmarks.straggler_cases import records
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

PAUSE_S = 0.3
CHECKPOINT_EVERY, CHECKPOINT_STEPS = 20, 2
# Steps of the quick and of the full form.
PAUSED_STEPS = {"129k": (120, 200), "1.9m": (45, 200)}
CHECKPOINT_RUNS = {"129k": (200, 200), "1.9m": (90, 200)}
CHECKPOINT_REPEATS = {"129k": 7, "1.9m": 3}


def pause(case: Case, context: Context, size: str) -> list[Row]:
    """Each repeat has the pause in another step of another rank."""
    steps, repeats = context.pick(*PAUSED_STEPS[size]), context.pick(5, 10)
    turns = []
    for repeat in range(repeats):
        pauses = plan.one_pause(
            steps, seconds=PAUSE_S, seed=context.seed * repeats + repeat
        )
        turns.append(
            [
                plan.loop(arm, size, steps, pauses=pauses)
                for arm in (plan.STRICT, plan.SKIP)
            ]
        )
    with place(LAB) as lab:
        found = train(lab, plan.in_turns(turns), context)
    strict = records.named(found, "strict")
    step_s = records.median([t for r in strict for t in records.step_times(r)]) / 1e3
    after = [after_pause(record) for record in records.named(found, "skip")]
    back, lost = (
        [getattr(a, name) for a in after] for name in ("steps_until_back", "lost")
    )
    arms = Arms(found)
    shown_back = " ".join(map(str, back))
    shown_lost = " ".join(f"{each:.1f}" for each in lost)
    return [
        case.judge(
            0,
            value=statistics.median(back),
            reference=2.0,
            note=f"steps until back: {shown_back}; {arms.note()}",
            arms=arms.as_json(),
            steps_until_back=back,
        ),
        case.judge(
            1,
            value=statistics.median(lost),
            reference=PAUSE_S / step_s,
            note=f"lost: {shown_lost}; a step takes {1e3 * step_s:.1f} ms",
            lost=[round(each, 3) for each in lost],
        ),
    ]


def checkpoint(case: Case, context: Context, size: str) -> list[Row]:
    """Only rank 0 pauses, for two step times in every twentieth step."""
    steps = context.pick(*CHECKPOINT_RUNS[size])
    repeats = max(CHECKPOINT_REPEATS[size], context.pick(3, 5))
    with place(LAB) as lab:
        step_s = usual_step_s(lab, plan.loop(plan.STRICT, size, steps), context)
        pauses = plan.every_nth(
            steps, rank=0, nth=CHECKPOINT_EVERY, seconds=CHECKPOINT_STEPS * step_s
        )
        blocks = [
            plan.loop(arm, size, steps, pauses=pauses, evaluate_every=0)
            for arm in (plan.STRICT, plan.SKIP)
        ]
        arms = Arms(train(lab, interleaved(blocks, repeats), context))
    return [
        progress_row(case, 0, arms, reference="strict"),
        case.judge(
            1,
            value=arms.median("skip", lambda run: run.share_by_rank[0]),
            reference=1.0,
        ),
    ]


def _kb(size: str) -> str:
    return f"{plan.SIZES[size] / 1e3:.0f} KB"


CASES = [
    *(
        Case(
            name=f"pause-{size}",
            what=f"one pause of 300 ms at a random step of one rank, {_kb(size)}",
            bars=(
                Bar(what="steps until it is back", of="2", bar=1.0, unit="steps"),
                Bar(
                    what="lost contributions",
                    of="pause / step",
                    bar=1.5,
                    unit="contributions",
                ),
            ),
            measure=functools.partial(pause, size=size),
        )
        for size in PAUSED_STEPS
    ),
    *(
        Case(
            name=f"checkpoint-{size}",
            what=f"rank 0 stands still for two steps in every twentieth, {_kb(size)}",
            bars=(
                progress_bar(1.0, "strict aikido"),
                Bar(what="rank 0's share", of="1", bar=0.85, unit="", better="higher"),
            ),
            measure=functools.partial(checkpoint, size=size),
        )
        for size in CHECKPOINT_RUNS
    ),
]
