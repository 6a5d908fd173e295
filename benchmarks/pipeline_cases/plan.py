# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runs of pipelines: plain values, no torch, the same for all ranks."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PLAN_FILE = "plan.json"  # in the folder of the ranks


@dataclass(frozen=True, kw_only=True)
class Run:
    """A pipeline that is made, carried out some times and closed."""

    name: str
    stages: list[list[int]]  # layers of each
    schedule: dict[str, Any]  # arguments of pipeline.schedule but `stages`
    in_flight: int = 0  # micro-batches that the first stage holds, on all its ranks
    times: int = 1  # that the schedule is carried out
    adapt: dict[str, Any] | None = None  # arguments of pipeline.Adapt
    # Mbit/s of hosts whose link is another one meanwhile, both ways, from the
    # `slow_from`th time on.
    links: dict[int, float] = field(default_factory=dict)
    slow_from: int = 0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one set of ranks does: layers are lists of arguments of layers.Spec."""

    layers: dict[str, list[dict[str, float]]]  # by model
    runs: list[tuple[str, Run]]  # which model, and the run


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
    """That any of them needs."""
    return max(sum(run.schedule["replicas"]) for _, run in runs)
