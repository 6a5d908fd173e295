# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Training of small models while one uplink is slow for 2 s in every 10 s."""

import functools
import statistics
import tempfile
from pathlib import Path

from benchmarks.straggler_cases import records, runs
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row
from benchmarks.straggler_cases.links import KIB, measure
from benchmarks.straggler_cases.plan import BATCH, Action, Block, interleaved
from benchmarks.straggler_cases.runs import Record
from benchmarks.tasks import RECIPES, Task

BAD_MBIT = 10.0
PERIOD_S, BAD_S = 10.0, 2.0
FIRST_S = 2.0  # so that a short run contains a slow time
# If only onsets matter: many of them, each in a step of its own.
ONSET_PERIOD_S, ONSET_BAD_S = 4.0, 1.0
ONSET_WITHIN_S = 0.5
# Accuracies that are timed. At these, a model has learnt most of what it can learn, so
# that effects of skipping are visible.
TARGETS = {Task.DIGITS: 0.97, Task.TEXT: 0.4}
# So small that it takes more than one period to get there.
GRADIENT_BYTES = 340 * KIB
LEARNING_RATES = {Task.DIGITS: 0.005, Task.TEXT: 0.2}
STEPS = {Task.DIGITS: 1000, Task.TEXT: 400}  # enough for the target


def bad_times(
    until_s: float, period_s: float = PERIOD_S, bad_s: float = BAD_S
) -> tuple[Action, ...]:
    actions, at_s = [], FIRST_S
    while at_s < until_s:
        actions += [
            Action(do="link", after_s=at_s, up_mbit=BAD_MBIT),
            Action(do="link", after_s=at_s + bad_s),
        ]
        at_s += period_s
    return tuple(actions)


def to_target(record: Record, target: float) -> tuple[float, float]:
    """Seconds and samples until the accuracy was reached.

    A sample counts when its gradient is in the parameters.
    """
    first = record.by_rank[0]
    for look in first["curve"]:
        if look["accuracy"] >= target:
            step = look["step"]
            samples = BATCH * sum(first["contributors"][:step])
            return look["seconds"], samples
    best = max((c["accuracy"] for c in record.by_rank[0]["curve"]), default=0.0)
    raise CaseError(
        f"'{record.block.name}' has not reached {target:.0%} but {best:.1%}"
    )


def rate(record: Record) -> float:
    """Steps per second without the first ones, in which DDP builds its final
    buckets.
    """
    times = records.step_times(record)
    return 1e3 * len(times) / sum(times)


def measure_steps(task: Task, blocks: list[Block], context: Context) -> list[Record]:
    with tempfile.TemporaryDirectory() as folder, runs.lab_of() as lab:
        data = Path(folder) / "data.npz"
        RECIPES[task].save(data, 0)
        return measure(
            lab,
            blocks,
            context,
            program=runs.STEP_RANK,
            extra={
                "data": str(data),
                "task": task,
                "learning_rate": LEARNING_RATES[task],
            },
        )


def training(task: Task, case: Case, context: Context) -> list[Row]:
    steps, repeats = context.pick(STEPS[task], 2 * STEPS[task]), context.pick(3, 10)
    actions = bad_times(600.0)
    blocks = [
        Block(
            name=f"{arm} {'bad' if bad else 'clean'}",
            arm=arm,
            ops=steps if arm == "skip" else steps // 3,
            num_bytes=GRADIENT_BYTES,
            warm_up=10,
            actions=bad,
            fresh=arm == "skip",
        )
        for bad in ((), actions)
        for arm in ("skip", "gloo")
    ]
    found = measure_steps(task, interleaved(blocks, repeats), context)
    rates = {
        block.name: statistics.median(map(rate, records.named(found, block.name)))
        for block in blocks
    }
    bad = records.named(found, "skip bad")
    times = [t for record in bad for t in records.step_times(record)]
    gloo = [t for r in records.named(found, "gloo bad") for t in records.step_times(r)]
    rows = [
        case.judge(
            0,
            value=rates["skip bad"],
            reference=rates["skip clean"],
            gloo=rates["gloo bad"],
            note=f"Gloo's clean {rates['gloo clean']:.4g}; {records.evidence(bad)}",
        ),
        case.judge(
            1,
            value=max(times),
            reference=records.median(times),
            gloo=max(gloo),
            note="worst five: " + " ".join(f"{t:.0f}" for t in sorted(times)[-5:]),
        ),
    ]
    return rows + _target_rows(case, found, TARGETS[task])


def onsets(case: Case, context: Context) -> list[Row]:
    """A link that becomes slow repeatedly, without accuracy and without Gloo.

    `training` has four onsets in each short run, too few to measure the effect of a
    change on the steps in which a link becomes slow.
    """
    block = Block(
        name="skip onsets",
        arm="skip",
        ops=context.pick(2400, 12000),
        num_bytes=GRADIENT_BYTES,
        warm_up=10,
        actions=bad_times(3600.0, ONSET_PERIOD_S, ONSET_BAD_S),
        fresh=True,
    )
    (record,) = measure_steps(Task.DIGITS, [block], context)
    median = records.median(records.step_times(record))
    moments = [m for m, action in record.done if action.up_mbit == BAD_MBIT]
    worst = records.worst_steps(record, moments, ONSET_WITHIN_S)
    if not worst:
        raise CaseError("the link did not turn bad")
    return [
        case.judge(
            0,
            value=max(worst),
            reference=median,
            note=f"{len(worst)} onsets, median {statistics.median(worst):.4g} ms; "
            + records.evidence([record]),
        )
    ]


def _target_rows(case: Case, found: list[Record], target: float) -> list[Row]:
    """Compares trainings with the same seed, by their geometric means.

    Seeds differ by more than the bar. The ratio of these means is the mean of the
    ratios within seeds.
    """
    try:
        bad, clean = (
            [to_target(r, target) for r in records.named(found, name)]
            for name in ("skip bad", "skip clean")
        )
    except CaseError as error:
        return [case.failed_row(number, error) for number in (2, 3)]

    def by_seed(part: int) -> str:
        ratios = (b[part] / c[part] for b, c in zip(bad, clean, strict=True))
        return "by seed: " + " ".join(f"{ratio:.2f}" for ratio in sorted(ratios))

    return [
        case.judge(
            2 + part,
            value=statistics.geometric_mean(r[part] for r in bad),
            reference=statistics.geometric_mean(r[part] for r in clean),
            note=by_seed(part),
        )
        for part in (0, 1)
    ]


def _case(name: str, task: Task) -> Case:
    target = f"{TARGETS[task]:.0%}"
    return Case(
        name=name,
        what=f"{task.value}, one uplink at {BAD_MBIT:g} Mbit/s for {BAD_S:g} s in "
        f"every {PERIOD_S:g} s",
        bars=(
            Bar(
                what="steps per second",
                of="clean",
                bar=0.97,
                unit="/s",
                better="higher",
            ),
            Bar(what="worst step", of="its median", bar=3.0),
            Bar(what=f"time to {target}", of="clean", bar=1.05, unit="s"),
            Bar(what=f"samples to {target}", of="clean", bar=1.05, unit="samples"),
        ),
        measure=functools.partial(training, task),
    )


CASES = [
    _case("training", Task.DIGITS),
    _case("training-text", Task.TEXT),
    Case(
        name="onsets",
        what=f"digits, one uplink at {BAD_MBIT:g} Mbit/s for {ONSET_BAD_S:g} s in "
        f"every {ONSET_PERIOD_S:g} s: the steps in which it turns bad",
        bars=(Bar(what="worst step of an onset", of="the median step", bar=3.0),),
        measure=onsets,
    ),
]
