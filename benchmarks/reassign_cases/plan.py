# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trainings whose computation is timed, as plain values equal for all ranks. Pure.

A micro-batch takes its work times the slowness of the rank that computes it. Slowness
changes between steps only. So the ideal time of a step is its whole work divided by the
sum of the speeds of all ranks, where a speed is 1 / slowness.
"""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

PLAN_FILE = "plan.json"  # in the folder of the ranks
# Steps after which the disruption of "moving" moves to the next rank.
MOVES_EVERY = 20
# Lengths in steps of the intervals of "power-law", and slowness in them: Pareto's
# distribution with this exponent, from the first value on, cut off at the last one.
EXPONENT = 1.5
LENGTHS = (2.0, 20.0)
SLOWNESS = (1.5, 5.0)

Array = npt.NDArray[np.float64]
Disruption = Literal["none", "one", "moving", "power-law"]
Task = Literal["timer", "text"]

# Arms: DistributedDataParallel with equal counts; a StepLoader that moves nothing and
# one that does, without and with bounded staleness, all with the predicted costs.
DDP, PREDICTED, REASSIGN = "DDP", "predicted costs", "reassign"
SLACK, BOTH = "slack", "reassign and slack"
ARMS = (DDP, PREDICTED, SLACK, REASSIGN, BOTH)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Steps of one model, by all ranks, in one arm."""

    arm: str
    num_ranks: int
    items: int  # micro-batches per rank and step
    item_ms: float  # mean work of a micro-batch
    steps: int  # measured steps
    warm_up: int = 2  # steps before them
    disruption: Disruption = "none"
    slower: float = 0.0  # of a slow rank: 1.0 is 100 % slower, half the speed
    sigma: float = 0.0  # of the logarithm of the work of a micro-batch
    wrong: float = 0.0  # standard deviation of the logarithm of predicted / real work
    task: Task = "timer"
    samples: int = 1  # per micro-batch
    seed: int = 0

    @property
    def all_steps(self) -> int:
        """Steps with the first ones."""
        return self.warm_up + self.steps

    @property
    def step_items(self) -> int:
        """Micro-batches per step, of all ranks."""
        return self.items * self.num_ranks

    def work_s(self) -> Array:
        """Seconds of each micro-batch at full speed; [step, micro-batch]."""
        shape = (self.all_steps, self.step_items)
        draw = np.random.default_rng((self.seed, 0))
        # The mean of exp(sigma z) is exp(sigma^2 / 2) for a normal z.
        lengths = np.exp(self.sigma * draw.standard_normal(shape) - self.sigma**2 / 2)
        return 1e-3 * self.item_ms * lengths

    def predicted(self) -> Array:
        """Predicted cost of each micro-batch; [step, micro-batch]."""
        work = self.work_s()
        draw = np.random.default_rng((self.seed, 1))
        return work * np.exp(self.wrong * draw.standard_normal(work.shape))

    def slowness(self) -> Array:
        """Factor of the work, at least 1; [step, rank]."""
        found = np.ones((self.all_steps, self.num_ranks))
        match self.disruption:
            case "one":
                found[:, -1] += self.slower
            case "moving":
                steps = np.arange(self.all_steps)
                found[steps, steps // MOVES_EVERY % self.num_ranks] += self.slower
            case "power-law":
                for rank in range(self.num_ranks):
                    draw = np.random.default_rng((self.seed, 2, rank))
                    found[:, rank] = _power_law(self.all_steps, draw)
        return found

    def ideal_s(self) -> float:
        """Whole work / sum of speeds, over the measured steps."""
        work = self.work_s().sum(axis=1)
        speed = (1 / self.slowness()).sum(axis=1)
        return float((work / speed)[self.warm_up :].sum())

    def limit_s(self) -> float:
        """Generous estimate of the duration, for the deadline of the ranks."""
        longest = self.slowness().max(axis=1) * self.work_s().sum(axis=1)
        return 10.0 + 2.0 * float(longest.sum()) / self.num_ranks


def _power_law(steps: int, draw: np.random.Generator) -> Array:
    """Slowness in each step: quiet and slow intervals follow each other."""
    found = np.ones(steps)
    begin, is_slow = 0, False
    while begin < steps:
        end = begin + round(_pareto(draw, *LENGTHS))
        if is_slow:
            found[begin:end] = _pareto(draw, *SLOWNESS)
        begin, is_slow = end, not is_slow
    return found


def _pareto(draw: np.random.Generator, least: float, most: float) -> float:
    return float(min(most, least * (1 + draw.pareto(EXPONENT))))


def in_turns(
    training: Training, *, turns: int, arms: Sequence[str] = ARMS
) -> list[Training]:
    """A B A B: the training in each arm, with the turn's number as its seed."""
    return [
        dataclasses.replace(training, arm=arm, seed=seed)
        for seed in range(turns)
        for arm in arms
    ]


def to_json(trainings: Iterable[Training]) -> str:
    return json.dumps([dataclasses.asdict(training) for training in trainings])


def from_json(text: str) -> list[Training]:
    return [Training(**row) for row in json.loads(text)]
