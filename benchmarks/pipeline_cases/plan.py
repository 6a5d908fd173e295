# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runs of pipelines: plain values, no torch, equal for all ranks."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PLAN_FILE = "plan.json"  # in the folder of the ranks


@dataclass(frozen=True, kw_only=True)
class Run:
    """A pipeline that is made, run several times and closed."""

    name: str
    stages: list[list[int]]  # layers of each stage
    schedule: dict[str, Any]  # arguments of pipeline.schedule except `stages`
    in_flight: int = 0  # Micro-batches that the first stage keeps, on all its ranks
    times: int = 1  # number of runs of the schedule
    adapt: dict[str, Any] | None = None  # arguments of pipeline.Adapt
    # Mbit/s of hosts with another link rate, both ways, from run `slow_from` on.
    links: dict[int, float] = field(default_factory=dict)
    slow_from: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Work of one set of ranks; layers are lists of arguments of layers.Spec."""

    layers: dict[str, list[dict[str, float]]]  # by name of the model
    runs: list[tuple[str, Run]]  # name of the model, and the run


def to_json(plan: Plan) -> str:
    return json.dumps(dataclasses.asdict(plan))


def from_json(text: str) -> Plan:
    read = json.loads(text)
    runs = []
    for model, row in read["runs"]:
        row["links"] = {int(host): rate for host, rate in row["links"].items()}
        runs.append((model, Run(**row)))
    return Plan(layers=read["layers"], runs=runs)


def num_ranks(runs: Sequence[tuple[str, Run]]) -> int:
    """Largest number of ranks that any of the runs needs."""
    return max(sum(run.schedule["replicas"]) for _, run in runs)
