# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Simulated windows of steps: late ranks of known patterns in known noise. Pure.

Times are in seconds; a step takes one second without noise. The generator is
independent of the detector.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aikido_torch.trace.analyze._step_facts import RankStep, StepFacts

__all__ = ["CAUSES", "PATTERNS", "SHAPES", "Cell", "can_tell", "window_of"]

PATTERNS = ("steady", "drifting", "once", "rotating")
SHAPES = (
    "normal",
    "log-normal",
    "exponential",
    "heavy tails",
    "common",
    "periodic",
    "unequal",
)
CAUSES = {"backward": "compute", "forward": "compute", "input": "input", "loop": "loop"}
_PARTS = {"input": 0.05, "forward": 0.3, "backward": 0.6, "loop": 0.05}
_EXCHANGE_S = 0.05

_Values = NDArray[Any]


@dataclass(frozen=True)
class Cell:
    """A setting of the table.

    Attributes:
        size: number of ranks.
        culprits: number of late ranks, in the same steps; 0: none.
        pattern: one of PATTERNS.
        steps: steps of the window.
        noise: standard deviation of a rank's own work, as a share of the step.
        delay: delay of a late rank, as a share of the step; drifting: its mean.
        shape: one of SHAPES.
    """

    size: int
    culprits: int
    pattern: str
    steps: int
    noise: float
    delay: float
    shape: str = "normal"


def can_tell(cell: Cell) -> bool:
    """True if the window has enough steps for its noise, by an independent criterion.

    Steady and drifting: the delay is 1.5 times the delay that a t test with known
    culprits finds in 99 of 100 windows at 1 false alarm in 1,000 windows. The factor
    compensates for unknown culprits. Once: 25 times the noise if the window has 160
    values, 60 times if it has 40. Rotating: 5 times the noise from 50 steps on, 8 times
    from 20 steps on (with two ranks 12 times), otherwise 20 times, and with two ranks
    never.
    """
    if cell.steps < 3 or cell.delay < 0.1:
        return False
    ratio = cell.delay / cell.noise
    if cell.pattern == "once":
        values = cell.size * cell.steps
        return values >= 40 and ratio >= (25 if values >= 160 else 60)
    if cell.pattern == "rotating":
        if cell.culprits > 1:
            return False
        if cell.steps >= 50:
            return ratio >= (6 if cell.size == 2 else 5)
        if cell.steps >= 20:
            return ratio >= (12 if cell.size == 2 else 8)
        return cell.size > 2 and cell.steps >= 5 and ratio >= 20
    free = (cell.size - 1) * (cell.steps - 2)
    needed = _t(1e-3 / cell.size, free) + 2.33 * math.sqrt(1 + 8 / free)
    fastest = cell.size - cell.size // 2
    error = math.sqrt((1 + 1 / fastest) / cell.steps)
    return ratio >= 1.5 * needed * error


def _t(chance: float, free: int) -> float:
    """Quantile of Student's t, from the normal one (Fisher's expansion)."""
    z = -NormalDist().inv_cdf(chance)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / free + second / free**2 + third / free**3


def window_of(
    cell: Cell, rng: np.random.Generator, part: str = "backward"
) -> tuple[list[StepFacts], set[int]]:
    """The steps of a window, and its late ranks."""
    noise = cell.noise * _noise(cell, rng)
    work = np.maximum(1 - _EXCHANGE_S + noise, 0.05)
    late, culprits = _late(cell, rng)
    steps = []
    for number in range(cell.steps):
        longest = float((work[number] + late[number]).max()) + _EXCHANGE_S
        steps.append(
            StepFacts(
                number,
                {
                    rank: _rank_step(
                        float(work[number, rank]), float(late[number, rank]), part,
                        longest,
                    )
                    for rank in range(cell.size)
                },
            )
        )  # fmt: skip
    return steps, culprits


def _rank_step(work: float, late: float, part: str, length: float) -> RankStep:
    parts = {name: share * work for name, share in _PARTS.items()}
    parts[part] += late
    return RankStep(
        work_s=work + late, input_s=parts["input"], length_s=length, parts=parts
    )


def _noise(cell: Cell, rng: np.random.Generator) -> _Values:
    """Noise with mean 0 and standard deviation 1."""
    size = cell.steps, cell.size
    normal = rng.standard_normal(size)
    match cell.shape:
        case "log-normal":
            width = math.sqrt(math.log((1 + math.sqrt(1 + 4 * cell.noise**2)) / 2))
            return (np.exp(width * normal) - math.exp(width**2 / 2)) / cell.noise
        case "exponential":
            return rng.exponential(size=size) - 1
        case "heavy tails":
            return rng.standard_t(4, size=size) / math.sqrt(2)
        case "common":
            return 0.8 * rng.standard_normal((cell.steps, 1)) + 0.6 * normal
        case "periodic":
            phase = rng.uniform(0, 2 * math.pi)
            wave = np.sin(2 * math.pi * np.arange(cell.steps) / 5 + phase)
            return 1.3 * wave[:, None] + 0.4 * normal
        case "unequal":
            return normal * rng.choice([0.4, 1.0], cell.size)
    return normal


def _late(cell: Cell, rng: np.random.Generator) -> tuple[_Values, set[int]]:
    late = np.zeros((cell.steps, cell.size))
    order = rng.permutation(cell.size)
    slow = order[: cell.culprits]
    number = np.arange(1, cell.steps + 1)[:, None]
    match cell.pattern:
        case "steady":
            late[:, slow] = cell.delay
        case "drifting":
            late[:, slow] = 2 * cell.delay * number / (cell.steps + 1)
        case "once":
            late[rng.integers(cell.steps), slow] = cell.delay
        case _:
            for step in range(cell.steps):
                for i in range(cell.culprits):
                    late[step, order[(step * cell.culprits + i) % cell.size]] = (
                        cell.delay
                    )
            slow = order[: min(cell.size, cell.steps * cell.culprits)]
    return late, {int(rank) for rank in slow}
