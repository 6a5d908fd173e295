# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""How long cutting a model into stages takes, and scheduling them, beside what it may.

Processor time of one thread, so that a busy machine does not count. The reference is a
limit in seconds: plans and schedules are made again whenever machines come or go.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1]))

from aikido_torch import pipeline
from benchmarks import common

DATA = Path(__file__).parents[1] / "tests/data/pipedream"


@dataclass(frozen=True)
class Case:
    """One partition, and the seconds that it may take."""

    name: str
    profile: str
    machines: list[int]
    bandwidth: list[float]
    limit_s: float
    memory_bytes: float | None = None


CASES = (
    Case("VGG16, 8", "vgg16", [8], [1e9], 0.1),
    Case("ResNet-50, 8", "resnet50", [8], [1e9], 1.0),
    Case("ResNet-50, 8 x 2", "resnet50", [8, 2], [30e9, 3.125e9], 10.0),
    Case("ResNet-50, 8 x 2, 16 GB", "resnet50", [8, 2], [30e9, 3.125e9], 10.0, 16e9),
    Case("GNMT-16, 8", "gnmt_large", [8], [1e9], 3.0),
    Case("GNMT-16, 8 x 2", "gnmt_large", [8, 2], [30e9, 3.125e9], 10.0),
)


def measure(case: Case, cost_model: str, repeats: int) -> common.Result:
    profile = pipeline.read_profile(DATA / f"{case.profile}.txt")
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
    """One schedule that is made, checked and timed, and the seconds it may take."""

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


def main(repeats: int = 3, json: common.JsonPath = None) -> None:
    """Measures the partitioner on published profiles, and large schedules."""
    common.report(
        [
            measure(case, cost_model, repeats)
            for case in CASES
            for cost_model in ("paper", "published_code")
        ]
        + [measure_schedule(case, repeats) for case in SCHEDULES],
        json,
    )


if __name__ == "__main__":
    typer.run(main)
