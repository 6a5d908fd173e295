# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The short form: one slow rank, for `make test`.

The bar only distinguishes work that moves from work that does not. Machines that run
tests are busy, so its row is no measurement.
"""

from benchmarks.reassign_cases.cases import beside_ideal, turns_of
from benchmarks.reassign_cases.plan import DDP, PREDICTED, REASSIGN, Training
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

# Without moves, the rank that is slower by 200 % makes a step 2.5 times as long as the
# ideal.
SLOWER = Training(
    arm=DDP,
    num_ranks=4,
    items=8,
    item_ms=15.0,
    steps=6,
    disruption="one",
    slower=2.0,
)


ARMS = (DDP, PREDICTED, REASSIGN)


def slower(case: Case, context: Context) -> list[Row]:
    return [beside_ideal(case, turns_of(SLOWER, context, turns=2, arms=ARMS))]


CASES = [
    Case(
        name="short-slower",
        what="one of four ranks is slower by 200 %",
        bars=(Bar(what="step", of="ideal", bar=1.8),),
        measure=slower,
    )
]
