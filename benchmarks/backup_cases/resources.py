# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cost of one backup for eight primaries, in computation and in bytes."""

import dataclasses

from benchmarks.backup_cases import runs
from benchmarks.backup_cases.plan import Training
from benchmarks.backup_cases.runs import Record
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

PRIMARIES = 8
LATE = 7
STEP_MS = 250.0  # long enough that the measurement is not limited by two cores
LATE_MS = 750.0
MIB = 1 << 20


def extra_batches(record: Record) -> float:
    """Batches that the backups computed, per step."""
    backups = range(record.training.primaries, record.training.size)
    computed = sum(record.by_rank[rank]["own_steps"] for rank in backups)
    return computed / record.training.steps


def of_one_contribution(strict: float, size: int) -> float:
    """Bytes of one contribution, from those of a strict allreduce of `size` ranks per
    step.

    There each rank sends its contribution to the other owners, and each owner its
    result to the other ranks, which is 2 * size times as many bytes.
    """
    return strict / (2 * size)


def resources(case: Case, context: Context) -> list[Row]:
    shadow = Training(
        name="shadow",
        primaries=PRIMARIES,
        backups=1,
        steps=context.pick(50, 120),
        task="flat",
        num_bytes=2 * MIB,
        step_ms=STEP_MS,
        late=(LATE,),
        late_share=1.0,
        late_ms=LATE_MS,
    )
    clean = dataclasses.replace(shadow, name="clean", late=())
    strict = dataclasses.replace(
        clean, name="strict", mode="strict", primaries=PRIMARIES + 1, backups=0
    )
    without = dataclasses.replace(strict, name="without", primaries=PRIMARIES)
    replicate = dataclasses.replace(
        clean, name="replicate", mode="replicate", backups=PRIMARIES
    )
    with runs.lab_of(replicate.size, mbit=None) as lab:
        found = runs.run([strict, without, clean, shadow, replicate], context, lab=lab)
    by_name = {record.training.name: record for record in found}
    ours, size = by_name["shadow"], shadow.size
    if ours.count("stand_ins") == 0:
        raise CaseError(f"primary {LATE} was late and nobody stood in for it")
    sent = {name: r.sent_bytes(well=False) / 1e6 for name, r in by_name.items()}
    one = of_one_contribution(sent["strict"], size)
    # Nine ranks receive the result, and eight contribute.
    eight_of_nine = sent["strict"] - one
    return [
        case.judge(
            0,
            value=extra_batches(ours),
            reference=extra_batches(by_name["replicate"]),
            note=f"{PRIMARIES} primaries, 1 backup, {ours.training.steps} steps",
        ),
        case.judge(
            1,
            value=sent["clean"],
            reference=eight_of_nine,
            note=f"measured: 9 strict ranks {sent['strict']:.4g} MB a step, 8 strict "
            f"ranks without a backup {sent['without']:.4g} MB: that a ninth one gets "
            f"the results costs {sent['clean'] / sent['without'] - 1:.1%}",
        ),
        case.judge(
            2,
            value=sent["shadow"] - sent["clean"],
            reference=one,
            note=f"primary {LATE} late in {ours.share_late(LATE):.0%} of the steps; "
            f"{sent['shadow']:.4g} MB a step, replicate {sent['replicate']:.4g} MB",
        ),
    ]


CASES = [
    Case(
        name="resources",
        what=f"{PRIMARIES} primaries, 1 backup, 2 MiB",
        bars=(
            Bar(
                what="batches computed by backups, per step",
                of="those of replicate",
                bar=1 / PRIMARIES,
                unit="batches",
            ),
            Bar(
                what="bytes of a healthy step",
                of="8 contributions and 9 results",
                bar=1.01,
                unit="MB",
            ),
            Bar(
                what="extra bytes of a straggling step",
                of="one contribution",
                bar=1.0,
                unit="MB",
            ),
        ),
        measure=resources,
    )
]
