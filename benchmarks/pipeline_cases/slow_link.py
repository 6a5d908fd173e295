# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Case in which one link drops to a fifth of its rate: fixed and adaptive warm-ups."""

from benchmarks.common import Samples
from benchmarks.pipeline_cases import runs
from benchmarks.pipeline_cases.layers import Spec
from benchmarks.pipeline_cases.plan import Run
from benchmarks.straggler_cases.case import Bar, Case, Context, Row

FORWARD_MS, BACKWARD_MS = 80.0, 160.0
# Far above the 96 KiB that a link carries at once after an idle time, and small enough
# that the slow link can keep up with the stages.
OUTPUT_BYTES = 400_000
MBIT = 100.0
SLOWER = 5
MICRO_BATCHES = 12
MOST = 8  # limit of micro-batches whose activations a rank keeps
WELL_TIMES = 2
LIMIT_S = 500.0

LAYERS = [
    Spec(forward_ms=FORWARD_MS, backward_ms=BACKWARD_MS, output_bytes=OUTPUT_BYTES)
] * (runs.HOSTS - 1) + [
    Spec(forward_ms=FORWARD_MS, backward_ms=BACKWARD_MS, output_bytes=16)
]


def run_of(schedule: str, host: int, slow_times: int, *, adapts: bool) -> Run:
    return Run(
        name=f"{schedule}, host {host}, {'adapting' if adapts else 'fixed'}",
        stages=[[number] for number in range(runs.HOSTS)],
        schedule={
            "name": schedule,
            "replicas": [1] * runs.HOSTS,
            "micro_batches": MICRO_BATCHES,
        },
        times=WELL_TIMES + slow_times,
        slow_from=WELL_TIMES,
        links={host: MBIT / SLOWER},
        adapt={"every": 1, "max_activations": MOST} if adapts else None,
    )


# The schedule, and the host of the slow link.
PLACES = (("1f1b", runs.HOSTS - 1), ("1f1b_async", runs.HOSTS - 1), ("1f1b_async", 1))


def slow_link(case: Case, context: Context) -> list[Row]:
    slow_times = context.pick(6, 12)
    planned = [
        ("model", run_of(schedule, host, slow_times, adapts=adapts))
        for schedule, host in PLACES
        for adapts in (False, True)
    ]
    with runs.make_lab(MBIT, queue_ms=50.0) as lab:
        records = runs.run(lab, {"model": LAYERS}, planned, context, limit_s=LIMIT_S)
    rows = []
    for number in range(len(PLACES)):
        fixed, adapting = records[2 * number : 2 * number + 2]
        taken = Samples(tuple(adapting.steps_s())), Samples(tuple(fixed.steps_s()))
        changes = "; ".join(adapting.by_rank[0]["adapted"])
        rows.append(
            case.judge(
                number,
                value=1 / adapting.step_s(),
                reference=1 / fixed.step_s(),
                note=f"medians {taken[0].median:.2f} s and {taken[1].median:.2f} s a "
                f"run of {MICRO_BATCHES} micro-batches; {changes or 'no change'}",
            )
        )
    return rows


CASES = [
    Case(
        name="slow-link",
        what=f"{runs.HOSTS} stages, {FORWARD_MS + BACKWARD_MS:g} ms each; a link gets "
        f"{MBIT / SLOWER:g} of {MBIT:g} Mbit/s",
        bars=tuple(
            Bar(
                what=f"speed by {schedule} that adapts, link of stage {host}",
                of="the fixed schedule",
                bar=1.2,
                unit="runs/s",
                better="higher",
            )
            for schedule, host in PLACES
        ),
        measure=slow_link,
    )
]
