# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cases in which ranks are late often, beside the best policy in hindsight.

Candidates are strict aikido, WaitAll(rebalance=True), and SkipStraggler with each fixed
deadline of plan.DEADLINES. All of them have the same lateness.
"""

import functools
from collections.abc import Callable

from benchmarks.progress_cases import plan
from benchmarks.progress_cases.figures import Arms
from benchmarks.progress_cases.measuring import (
    LAB,
    place,
    progress_bar,
    progress_of,
    train,
    usual_step_s,
)
from benchmarks.progress_cases.plan import Pauses
from benchmarks.straggler_cases.case import Case, Context, Row
from benchmarks.straggler_cases.plan import BAD, NUM_RANKS, jitter

SIZE = "129k"
COMPUTE_S = 0.03  # computation of each rank and step, in cases with uneven computation
MORE = (0.12, 0.25, 0.5, 1.0)
SHARES = {"fifth": 0.2, "third": 1 / 3}
SIGMAS = (0.1, 0.3, 1.0)
BAR = progress_bar(0.97, "the best policy in hindsight")

# Function of the number of steps, the seconds of a usual step, and a seed.
Lateness = Callable[[int, float, int], Pauses]


def beside_the_best(case: Case, context: Context, lateness: Lateness) -> list[Row]:
    """Judges a case; each repeat has its own lateness, equal in all arms."""
    num_steps, repeats = context.pick(100, 200), context.pick(3, 5)
    with place(LAB) as lab:
        usual_s = usual_step_s(lab, plan.loop(plan.STRICT, SIZE, num_steps), context)
        turns = []
        for repeat in range(repeats):
            pauses = lateness(num_steps, usual_s, context.seed * repeats + repeat)
            strict, skip, exact = (
                plan.loop(arm, SIZE, num_steps, pauses=pauses)
                for arm in (plan.STRICT, plan.SKIP, plan.EXACT)
            )
            step_s = usual_s + plan.usual_pause_s(pauses)
            turns.append([strict, skip, exact, *plan.hindsight(skip, step_s)])
        arms = Arms(train(lab, plan.in_turns(turns), context))
    best, progress = arms.best(name for name in arms.names() if name != "skip")
    return [
        case.judge(
            0,
            value=arms.median("skip", progress_of),
            reference=progress,
            note=f"the best is {best}; {arms.note()}",
            best=best,
            arms=arms.as_json(),
        )
    ]


# ---- patterns of lateness ------------------------------------------------------------


def always_slower(steps: int, step_s: float, seed: int, *, more: float) -> Pauses:
    return plan.slower(steps, rank=BAD, compute_s=COMPUTE_S, more=more)


def late_at_random(steps: int, step_s: float, seed: int, *, share: float) -> Pauses:
    return plan.late_by_steps(
        steps, ranks=(BAD,), share=share, step_s=step_s, seed=seed
    )


def two_late(steps: int, step_s: float, seed: int) -> Pauses:
    return plan.late_by_steps(
        steps, ranks=(BAD - 1, BAD), share=0.2, step_s=step_s, seed=seed
    )


def in_rotation(steps: int, step_s: float, seed: int) -> Pauses:
    return plan.rotating(steps, nth=3, seconds=2 * step_s)


def all_jitter(steps: int, step_s: float, seed: int, *, sigma: float) -> Pauses:
    return {
        rank: jitter(
            steps, median_s=COMPUTE_S, sigma=sigma, seed=seed * NUM_RANKS + rank
        )
        for rank in range(NUM_RANKS)
    }


def _case(name: str, what: str, lateness: Lateness) -> Case:
    return Case(
        name=name,
        what=f"{what}, {plan.SIZES[SIZE] / 1e3:.0f} KB",
        bars=(BAR,),
        measure=functools.partial(beside_the_best, lateness=lateness),
    )


CASES = [
    *(
        _case(
            f"slower-{more:.0%}".rstrip("%"),
            f"one rank computes {more:.0%} longer, always",
            functools.partial(always_slower, more=more),
        )
        for more in MORE
    ),
    *(
        _case(
            f"late-{name}",
            f"one rank is 1 to 10 steps late in a random {name} of the steps",
            functools.partial(late_at_random, share=share),
        )
        for name, share in SHARES.items()
    ),
    _case(
        "rotating",
        "in every third step another rank is two steps late",
        in_rotation,
    ),
    _case(
        "two-late",
        "two of four ranks are 1 to 10 steps late in a random fifth of the steps",
        two_late,
    ),
    *(
        _case(
            f"jitter-{sigma:g}",
            f"computation of all ranks is log-normal, sigma {sigma:g}",
            functools.partial(all_jitter, sigma=sigma),
        )
        for sigma in SIGMAS
    ),
]
