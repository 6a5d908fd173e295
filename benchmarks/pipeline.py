# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Time to cut a model into stages, to schedule them, and to run them.

The first two are measured in processor time of one thread, so that a busy machine does
not matter. Their reference is a limit in seconds, because plans and schedules are made
again whenever machines join or leave.

Pipelines run on four ranks of this machine, with stages that sleep (pipeline_ranks.py),
beside torch.distributed.pipelining over Gloo. They also run on hosts with slow links
(pipeline_cases/), beside the predictions of the partitioner and beside schedules that
do not adapt. The latter need root, and report if that is missing.
"""

import sys
import time
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1]))

from aikido_torch import pipeline
from aikido_torch.pipeline.plan import _profile
from aikido_torch.testing import run_ranks
from benchmarks import common, pipeline_ranks
from benchmarks.pipeline_cases import slow_link, throughput
from benchmarks.straggler_cases import command
from benchmarks.straggler_cases.case import Case

LAB_CASES = [*throughput.CASES, *slow_link.CASES]
DATA = Path(__file__).parents[1] / "tests/data/pipedream"


@dataclass(frozen=True)
class PlanCase:
    """One partition, and its limit in seconds."""

    name: str
    profile: str
    machines: list[int]
    bandwidth: list[float]
    limit_s: float
    memory_bytes: float | None = None


CASES = (
    PlanCase("VGG16, 8", "vgg16", [8], [1e9], 0.1),
    PlanCase("ResNet-50, 8", "resnet50", [8], [1e9], 1.0),
    PlanCase("ResNet-50, 8 x 2", "resnet50", [8, 2], [30e9, 3.125e9], 10.0),
    PlanCase(
        "ResNet-50, 8 x 2, 16 GB", "resnet50", [8, 2], [30e9, 3.125e9], 10.0, 16e9
    ),
    PlanCase("GNMT-16, 8", "gnmt_large", [8], [1e9], 3.0),
    PlanCase("GNMT-16, 8 x 2", "gnmt_large", [8, 2], [30e9, 3.125e9], 10.0),
)


def measure(case: PlanCase, cost_model: str, repeats: int) -> common.Result:
    profile = _profile.read_profile(DATA / f"{case.profile}.txt")
    times = common.measure_interleaved(
        {
            "partition": lambda: pipeline.partition(
                profile,
                machines=case.machines,
                bandwidth=case.bandwidth,
                cost_model=cost_model,
                memory_bytes=case.memory_bytes,
            )
        },
        repeats=repeats,
        warmup=0,
        clock=time.process_time,
    )
    return common.Result.judge(
        f"{case.name}, {cost_model}",
        unit="s",
        value=times["partition"].median,
        reference=case.limit_s,
        bar=1.0,
    )


@dataclass(frozen=True)
class ScheduleCase:
    """One schedule that is made, checked and timed, and its limit in seconds."""

    name: str
    options: dict[str, Any]
    limit_s: float


SCHEDULES = (
    ScheduleCase("1f1b_async", {"stages": 8, "micro_batches": 4096}, 1.0),
    ScheduleCase(
        "zero_bubble", {"stages": 64, "micro_batches": 256, "stages_per_rank": 4}, 1.0
    ),
    ScheduleCase(
        "1f1b_async", {"stages": 3, "micro_batches": 9000, "replicas": [9, 5, 2]}, 1.0
    ),
)


def measure_schedule(case: ScheduleCase, repeats: int) -> common.Result:
    def make_and_use() -> None:
        schedule = pipeline.schedule(case.name, **case.options)
        schedule.validate()
        schedule.simulate()

    times = common.measure_interleaved(
        {"schedule": make_and_use}, repeats=repeats, warmup=0, clock=time.process_time
    )
    told = ", ".join(f"{name} {value}" for name, value in case.options.items())
    return common.Result.judge(
        f"{case.name}, {told}",
        unit="s",
        value=times["schedule"].median,
        reference=case.limit_s,
        bar=1.0,
    )


STAGES = 4
MICRO_BATCHES = 8  # Micro-batches of a step of 1F1B
STEPS = 6
# Forwards before the first backward: one more for each hop than without transfers, so
# that a stage has work while a message is in transfer.
AHEAD = [6, 4, 2, 0]
INSTRUCTION_S = 100e-6  # limit for an instruction


def measure_runs(repeats: int) -> list[common.Result]:
    """Four stages: time per sample, beside torch's 1F1B with the same stages."""
    many = MICRO_BATCHES * STEPS
    arguments = (MICRO_BATCHES, STEPS, repeats)
    theirs = run_ranks(STAGES, pipeline_ranks.run_torch, *arguments, backend="gloo")
    flush = run_ranks(STAGES, pipeline_ranks.run_flush, *arguments)
    times = pipeline_ranks.FORWARD_S, pipeline_ranks.BACKWARD_S
    # Long enough that filling and draining weigh as little as in training.
    long = 2 * many
    ours = run_ranks(STAGES, pipeline_ranks.run_async, [long], times, AHEAD, repeats)
    reference_s = _per_micro_batch(theirs[0][0], many)
    pairs = zip(flush[-1][1], theirs[-1][1], strict=True)
    return [
        _milliseconds(
            "1f1b_async, a micro-batch, beside 1F1B of torch over Gloo",
            _per_micro_batch(ours[0][long], long),
            reference_s,
            bar=0.80,
        ),
        _milliseconds(
            "1f1b, the same",
            _per_micro_batch(flush[0][0], many),
            reference_s,
            bar=None,
        ),
        common.Result.judge(
            "1f1b, losses of micro-batches that differ from those of torch",
            unit="losses",
            value=sum(a != b for a, b in pairs),
            reference=0,
            bar=1.0,
        ),
    ]


def measure_period(repeats: int) -> common.Result:
    """Four full stages: time from one micro-batch to the next.

    It is the difference of a long run and a short run, so filling and draining cancel.
    """
    times = pipeline_ranks.SLOW_FORWARD_S, pipeline_ranks.SLOW_BACKWARD_S
    short, long = 24, 48
    arguments = ([short, long], times, AHEAD, repeats)
    taken = run_ranks(STAGES, pipeline_ranks.run_async, *arguments)[0]
    medians = [common.Samples(tuple(taken[n])).median for n in (short, long)]
    return _milliseconds(
        "1f1b_async, period when full, beside forward + backward",
        (medians[1] - medians[0]) / (long - short),
        sum(times),
        bar=1 / 0.95,  # idle for 5 %
    )


def _per_micro_batch(seconds: list[float], count: int) -> float:
    return common.Samples(tuple(seconds)).median / count


def _milliseconds(
    case: str, value_s: float, reference_s: float, *, bar: float | None
) -> common.Result:
    return common.Result.judge(
        case, unit="ms", value=1e3 * value_s, reference=1e3 * reference_s, bar=bar
    )


def measure_overhead(repeats: int) -> common.Result:
    """Processor time of an instruction, on the rank with the highest value."""
    found = run_ranks(3, pipeline_ranks.run_overhead, 200, repeats)
    worst = max(common.Samples(tuple(times)).median for times in found)
    return common.Result.judge(
        "an instruction, processor time without computing",
        unit="us",
        value=1e6 * worst,
        reference=1e6 * INSTRUCTION_S,
        bar=1.0,
    )


def measure_lab(
    cases: list[Case], *, is_full: bool, details: Path | None
) -> list[common.Result]:
    """Measures on hosts with slow links, and prints details of the figures."""

    def write_record(case: str, record: dict[str, Any]) -> None:
        if details:
            with details.open("a") as file:
                file.write(dumps({"case": case, **record}) + "\n")

    console = common.console_for_tables()
    rows = command.measure(
        console,
        cases,
        is_full=is_full,
        seed=0,
        on_rows=lambda rows: None,
        on_record=write_record,
    )
    for row in rows:
        for text in filter(None, (row.failed, row.note)):
            console.print(f"{row.result.case}: {text}", markup=False, highlight=False)
    return [row.result for row in rows]


def main(
    cases: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CASE]...", help="Cases of the lab; default: all."),
    ] = None,
    repeats: int = 3,
    runs: Annotated[bool, typer.Option(help="Measure runs on this machine.")] = True,
    plans: Annotated[bool, typer.Option(help="Measure partitions, schedules.")] = True,
    lab: Annotated[bool, typer.Option(help="Measure on hosts with slow links.")] = True,
    full: command.Full = False,
    details: command.Details = None,
    json: common.JsonPath = None,
) -> None:
    """Measures the partitioner on published profiles, large schedules, and runs."""
    of_lab = command.chosen(LAB_CASES, cases or []) if lab else []
    results = []
    if plans:
        results += [
            measure(case, cost_model, repeats)
            for case in CASES
            for cost_model in ("paper", "published_code")
        ]
        results += [measure_schedule(case, repeats) for case in SCHEDULES]
    if runs:
        results += measure_runs(repeats)
        results += [measure_period(repeats), measure_overhead(repeats)]
    if of_lab:
        results += measure_lab(of_lab, is_full=full, details=details)
    common.report(results, json)


if __name__ == "__main__":
    typer.run(main)
