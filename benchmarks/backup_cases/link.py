# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Case in which the link of one primary is slow permanently."""

import dataclasses

from benchmarks.backup_cases import runs
from benchmarks.backup_cases.plan import WELL_STEPS, Training
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

MBIT = 200.0
SLOW_MBIT = 20.0
SLOW = 3
MIB = 1 << 20
STEP_MS = 200.0


def slow_link(case: Case, context: Context) -> list[Row]:
    clean = Training(
        name="clean",
        backups=1,
        steps=WELL_STEPS + context.pick(40, 150),
        task="flat",
        num_bytes=4 * MIB,
        step_ms=STEP_MS,
    )
    slow = dataclasses.replace(clean, name="slow", links={SLOW: SLOW_MBIT})
    skip = dataclasses.replace(slow, name="skip", mode="skip", backups=0)
    with runs.lab_of(clean.size, mbit=MBIT) as lab:
        found = runs.run([clean, slow, skip], context, lab=lab)
    by_name = {record.training.name: record for record in found}
    rest = [rank for rank in range(clean.primaries) if rank != SLOW]
    ours = by_name["slow"]
    return [
        case.judge(
            0,
            value=ours.step_ms(rest),
            reference=by_name["clean"].step_ms(rest),
            note=f"primary {SLOW} late in {ours.share_late(SLOW):.0%} of the steps, "
            f"{ours.count('stand_ins')} stand-ins, {ours.count('skipped')} skips in "
            f"{clean.steps} steps",
        ),
        case.show(
            "step with SkipStraggler", value=by_name["skip"].step_ms(rest), unit="ms"
        ),
    ]


CASES = [
    Case(
        name="slow-link",
        what=f"5 hosts of {MBIT:g} Mbit/s, 4 MiB; the link of a primary has "
        f"{SLOW_MBIT:g} Mbit/s, {STEP_MS:g} ms of computation",
        bars=(Bar(what="step time, shadow, b=1", of="clean", bar=1.1),),
        measure=slow_link,
    )
]
