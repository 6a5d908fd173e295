# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One training of layers that sleep: plain values, no torch, equal for all ranks."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass

PLAN_FILE = "plan.json"  # in the folder of the ranks


@dataclass(frozen=True, kw_only=True)
class Training:
    """Steps of one model, by all ranks."""

    name: str
    model: str  # name among the models of the case
    arm: str  # "overlapped", or "ddp" of torch
    backend: str = "aikido"  # or "gloo"
    bucket_mb: float | None = None  # for "ddp"; None: the default of torch
    warm_up: int = 5  # steps that are not measured
    steps: int = 8  # measured steps
    mbit: float | None = None  # rate of all links from this training on
    # Rate of all links, from `later` steps before its end.
    later_mbit: float | None = None
    later: int = 0


# A layer: forward ms, backward ms, bytes of weights.
Layer = tuple[float, float, int]


def to_json(models: dict[str, list[Layer]], trainings: Iterable[Training]) -> str:
    rows = [dataclasses.asdict(training) for training in trainings]
    return json.dumps({"models": models, "trainings": rows})


def from_json(text: str) -> tuple[dict[str, list[Layer]], list[Training]]:
    read = json.loads(text)
    models = {
        name: [(forward, backward, size) for forward, backward, size in layers]
        for name, layers in read["models"].items()
    }
    return models, [Training(**row) for row in read["trainings"]]


def compute_s(layers: Iterable[Layer]) -> float:
    """Computation seconds of one step."""
    return sum(forward + backward for forward, backward, _ in layers) / 1e3


def link_s(layers: Iterable[Layer], *, num_ranks: int, bytes_per_s: float) -> float:
    """Transfer seconds of one step without latency; each rank sends a shard twice."""
    total = sum(size for _, _, size in layers)
    return 2 * total * (num_ranks - 1) / num_ranks / bytes_per_s


def estimate_s(
    models: dict[str, list[Layer]], trainings: Iterable[Training], *, mbit: float
) -> float:
    """Rough estimate for the deadline of the ranks."""
    total = 60.0
    for training in trainings:
        layers = models[training.model]
        rates = (training.mbit or mbit, training.later_mbit or mbit)
        rate = min(rates) * 1e6 / 8
        step = compute_s(layers) + link_s(layers, num_ranks=8, bytes_per_s=rate)
        total += 3 + 1.5 * step * (training.warm_up + training.steps)
    return total
