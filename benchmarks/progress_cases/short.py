# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The short form: some rows on one host, for `make test`.

Their bars only distinguish a working policy from a broken one. Machines that run tests
are busy, so these rows are no measurements.
"""

import statistics

from benchmarks.progress_cases import plan
from benchmarks.progress_cases.figures import Arms, after_pause
from benchmarks.progress_cases.measuring import (
    HOST,
    place,
    progress_bar,
    progress_row,
    train,
)
from benchmarks.straggler_cases import records
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

STEPS, REPEATS = 30, 3
PAUSE_S = 0.3


def healthy(case: Case, context: Context) -> list[Row]:
    turn = [plan.loop(arm, "129k", STEPS) for arm in (plan.STRICT, plan.SKIP)]
    with place(HOST) as lab:
        arms = Arms(train(lab, plan.in_turns([turn] * REPEATS), context))
    return [
        progress_row(case, 0, arms, reference="strict"),
        case.judge(1, value=arms.median("skip", lambda run: run.share), reference=1.0),
    ]


def pause(case: Case, context: Context) -> list[Row]:
    turns = [
        [
            plan.loop(
                plan.SKIP,
                "37k",
                3 * STEPS,
                pauses=plan.one_pause(3 * STEPS, seconds=PAUSE_S, seed=repeat),
            )
        ]
        for repeat in range(REPEATS)
    ]
    with place(HOST) as lab:
        found = train(lab, plan.in_turns(turns), context)
    back = [after_pause(r).steps_until_back for r in records.named(found, "skip")]
    arms = Arms(found)
    return [
        case.judge(
            0,
            value=statistics.median(back),
            reference=2.0,
            note=f"steps until back: {' '.join(map(str, back))}; {arms.note()}",
            arms=arms.as_json(),
        )
    ]


CASES = [
    Case(
        name="short-healthy",
        what="nobody is slow, 129 KB of gradients, one host",
        bars=(
            progress_bar(0.3, "strict aikido"),
            Bar(what="share", of="1", bar=0.7, unit="", better="higher"),
        ),
        measure=healthy,
    ),
    Case(
        name="short-pause",
        what="one pause of 300 ms of one rank, 37 KB, one host",
        bars=(Bar(what="steps until it is back", of="2", bar=8.0, unit="steps"),),
        measure=pause,
    ),
]
