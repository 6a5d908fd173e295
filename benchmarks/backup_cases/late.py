# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Case in which more primaries are late than there are backups."""

from benchmarks.backup_cases import runs
from benchmarks.backup_cases.plan import WELL_STEPS, Training
from benchmarks.backup_cases.runs import Record
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row

# More than half of the ranks must be on time, otherwise the others wait for the late
# ones.
PRIMARIES = 5
LATE = (3, 4)
STEP_MS = 50.0
LATE_MS = 150.0
KIB = 1 << 10


def steps_with_both(record: Record) -> list[int]:
    """Steps in which neither late primary contributed."""
    steps = range(WELL_STEPS, record.training.steps)
    return [step for step in steps if set(LATE) <= record.late_in(step)]


def is_covered_and_named(record: Record, step: int) -> bool:
    """True if one of the two has a stand-in and the other one is skipped."""
    skipped = set(record.first["skipped"][step])
    stood_in = {int(shard) for shard in record.first["stand_ins"][step]}
    return len(stood_in) == 1 and stood_in | skipped == set(LATE) != skipped


def two_late(case: Case, context: Context) -> list[Row]:
    training = Training(
        name="two late",
        primaries=PRIMARIES,
        backups=1,
        steps=WELL_STEPS + context.pick(80, 400),
        seed=context.seed,
        task="flat",
        num_bytes=64 * KIB,
        step_ms=STEP_MS,
        late=LATE,
        late_share=1.0,
        late_ms=LATE_MS,
    )
    (record,) = runs.run([training], context)
    both = steps_with_both(record)
    if len(both) < (training.steps - WELL_STEPS) // 2:
        raise CaseError(f"both were late in {len(both)} steps only")
    # In the first one their lateness is not known yet.
    judged = both[1:]
    good = [step for step in judged if is_covered_and_named(record, step)]
    other = [step for step in judged if step not in good]
    return [
        case.judge(
            0,
            value=len(good),
            reference=len(judged),
            note=f"of {training.steps - WELL_STEPS} steps; "
            f"{record.count('stand_ins')} stand-ins, {record.count('skipped')} skips; "
            f"other steps: {other[:10] or 'none'}",
        )
    ]


CASES = [
    Case(
        name="two-late",
        what=f"{PRIMARIES} primaries, two of them late in every step, and one backup",
        bars=(
            Bar(
                what="steps with one covered, one skipped, both named",
                of="steps with both late, but the first",
                bar=1.0,
                unit="steps",
                better="higher",
            ),
        ),
        measure=two_late,
    )
]
