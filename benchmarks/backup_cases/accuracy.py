# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Case in which data differ between ranks, and one primary is late in almost every
step.
"""

import dataclasses
import statistics
import tempfile
from pathlib import Path

from benchmarks.backup_cases import runs
from benchmarks.backup_cases.plan import Training
from benchmarks.backup_cases.runs import Record
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row
from benchmarks.tasks import save_digits

LATE = 3
# It misses two more steps whenever it is late, so it is late in 90 % of all steps. The
# note of each row has the measured share.
LATE_SHARE = 0.78
STEP_MS = 50.0
LATE_MS = 100.0
TARGET = 0.97
STEPS = 200


def trainings(seed: int, steps: int) -> list[Training]:
    clean = Training(name="clean", backups=1, steps=steps, seed=seed, step_ms=STEP_MS)
    shadow = dataclasses.replace(
        clean, name="shadow", late=(LATE,), late_share=LATE_SHARE, late_ms=LATE_MS
    )
    return [
        clean,
        shadow,
        dataclasses.replace(shadow, name="skip", mode="skip", backups=0),
        dataclasses.replace(shadow, name="replicate", mode="replicate", backups=4),
    ]


def final(record: Record) -> float:
    """Test accuracy in percentage points."""
    return 100 * record.first["curve"][-1]["accuracy"]


def seconds_to_target(record: Record) -> float:
    for look in record.first["curve"]:
        if look["accuracy"] >= TARGET:
            return look["seconds"]
    best = max(look["accuracy"] for look in record.first["curve"])
    raise CaseError(
        f"'{record.training.name}' has not reached {TARGET:.0%} but {best:.1%}"
    )


def accuracy(case: Case, context: Context) -> list[Row]:
    num_seeds = context.pick(2, 5)
    found: list[Record] = []
    for seed in range(context.seed, context.seed + num_seeds):
        # The split of the data depends on the seed.
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "digits.npz"
            save_digits(data, seed=seed)
            part = dataclasses.replace(
                context,
                on_progress=lambda share, seed=seed: context.on_progress(
                    (seed - context.seed + share) / num_seeds
                ),
            )
            found += runs.run(trainings(seed, STEPS), part, data=data)

    def points(name: str) -> list[float]:
        return [final(record) for record in runs.named(found, name)]

    def lost(name: str) -> float:
        return statistics.fmean(points("clean")) - statistics.fmean(points(name))

    def note(name: str) -> str:
        each = " ".join(f"{value:.1f}" for value in points(name))
        own = runs.named(found, name)
        late = statistics.fmean(record.share_late(LATE) for record in own)
        lost_steps = sum(record.count("skipped") for record in own)
        return (
            f"final accuracy by seed {each}; primary {LATE} late in {late:.0%} of the "
            f"steps, {lost_steps} data shards lost in all"
        )

    rows = [
        case.judge(0, value=lost("shadow"), reference=0.5, note=note("shadow")),
        case.judge(1, value=lost("skip"), reference=2.0, note=note("skip")),
    ]
    try:
        times = {
            name: [seconds_to_target(record) for record in runs.named(found, name)]
            for name in ("clean", "shadow")
        }
        ratios = zip(times["shadow"], times["clean"], strict=True)
        rows.append(
            case.judge(
                2,
                value=statistics.fmean(times["shadow"]),
                reference=statistics.fmean(times["clean"]),
                note="by seed " + " ".join(f"{ours / c:.3f}" for ours, c in ratios),
            )
        )
    except CaseError as error:
        rows.append(case.failed_row(2, error))
    rows.append(
        case.show(
            "points lost by replicate",
            value=lost("replicate"),
            unit="points",
            note=note("replicate"),
        )
    )
    clean = points("clean")
    text = " ".join(f"{value:.1f}" for value in clean)
    mean = statistics.fmean(clean)
    rows.append(
        case.show("clean", value=mean, unit="%", note=f"final accuracy by seed {text}")
    )
    return rows


CASES = [
    Case(
        name="accuracy",
        what="digits split by class over 4 primaries, one late in 90 % of the steps",
        bars=(
            Bar(
                what="points lost by shadow, b=1",
                of="0.5 points",
                bar=1.0,
                unit="points",
            ),
            Bar(
                what="points lost by skip",
                of="2 points",
                bar=1.0,
                unit="points",
                better="higher",
            ),
            Bar(what=f"time to {TARGET:.0%}, shadow", of="clean", bar=1.05, unit="s"),
        ),
        measure=accuracy,
    )
]
