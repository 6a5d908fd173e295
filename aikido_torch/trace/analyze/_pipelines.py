# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Detection of late ranks and stages of a pipeline in a window of steps. Pure.

Ranks of a pipeline do different work, so three tables are tested: the replicas of each
stage against each other; the stages against each other; and the time between two runs
of the schedule, over all ranks. A stage counts by its fastest replica, for one
micro-batch, divided by the number of replicas. If the trace has the times of a plan, a
stage is slow if it takes more of the time than planned. Without a plan, an uneven cut
shows as a slow stage.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aikido_torch.trace.analyze._detect import LEAST_SHARE, Pattern, Slow, find
from aikido_torch.trace.analyze._step_facts import RankStep, StepFacts
from aikido_torch.trace.analyze._verdict import Part

__all__ = ["PipelineLoss", "PipelineLosses", "pipeline_losses"]


@dataclass(frozen=True)
class PipelineLoss:
    """A late rank; `stage` is None for the time between two runs."""

    rank: int
    stage: int | None
    part: Part | None
    slow: Slow
    pattern: Pattern


@dataclass(frozen=True)
class PipelineLosses:
    """The losses, and the steady loss that would have been found."""

    losses: list[PipelineLoss]
    visible_s: float


def pipeline_losses(
    window: Sequence[StepFacts], ranks: Sequence[int], step_s: float
) -> PipelineLosses:
    """The late ranks of a window.

    Args:
        window: steps in which ranks have stages.
        ranks: ranks, ascending.
        step_s: length of a step without delays.
    """
    holders: defaultdict[int, set[int]] = defaultdict(set)
    for facts in window:
        for rank, step in facts.ranks.items():
            for stage in step.stages:
                holders[stage].add(rank)
    tables = {
        stage: _stage_table(window, sorted(own), stage, step_s)
        for stage, own in sorted(holders.items())
    }
    losses: list[PipelineLoss] = []
    visible = 0.0
    for stage, own in sorted(holders.items()):
        if len(own) > 1:
            usual = float(np.nanmedian(tables[stage]))
            found = find(tables[stage], usual)
            visible = max(visible, _share(found.visible_s, usual))
            losses += [
                _loss(window, sorted(own)[slow.column], stage, slow, found.pattern)
                for slow in found.slow
            ]
    late = {(loss.stage, loss.rank) for loss in losses}
    if len(holders) > 1:
        stages = sorted(holders)
        costs = np.stack(
            [_fastest(tables[s]) / len(holders[s]) for s in stages], axis=1
        )
        costs = costs / _planned_shares(window, stages, holders)
        usual = float(np.nanmedian(_fastest(costs)))
        found = find(costs, usual)
        visible = max(visible, _share(found.visible_s, usual))
        for slow in found.slow:
            stage = stages[slow.column]
            losses += [
                _loss(window, rank, stage, slow, found.pattern)
                for rank in sorted(holders[stage])
                if (stage, rank) not in late
            ]
    loops = np.array(
        [
            [
                f.ranks[r].parts.get("loop", math.nan)
                if r in f.ranks and _is_sure(f.ranks[r], step_s)
                else math.nan
                for r in ranks
            ]
            for f in window
        ]
    )
    found = find(loops, step_s)
    losses += [
        PipelineLoss(ranks[slow.column], None, "loop", slow, found.pattern)
        for slow in found.slow
    ]
    return PipelineLosses(losses, visible * step_s)


def _fastest(table: NDArray[Any]) -> NDArray[Any]:
    """The smallest value of each row; NaN if all are unknown."""
    least: NDArray[Any] = np.where(np.isfinite(table), table, math.inf).min(axis=1)
    return np.where(np.isfinite(least), least, math.nan)


def _planned_shares(
    window: Sequence[StepFacts], stages: Sequence[int], holders: Mapping[int, set[int]]
) -> NDArray[Any]:
    """Planned time of each stage divided by their mean; 1 without a plan."""
    planned: dict[int, float] = {}
    for facts in window:
        for own in facts.ranks.values():
            planned |= own.planned_s
    each = np.array([planned.get(s, 0.0) / len(holders[s]) for s in stages])
    return each / each.mean() if (each > 0).all() else np.ones(len(stages))


def _is_sure(own: RankStep, step_s: float) -> bool:
    """True if stops cause no doubt about the work of the rank."""
    return own.unsure_s < LEAST_SHARE * step_s


def _share(visible_s: float, usual_s: float) -> float:
    return visible_s / usual_s if usual_s > 0 else math.inf


def _stage_table(
    window: Sequence[StepFacts], ranks: list[int], stage: int, step_s: float
) -> NDArray[Any]:
    return np.array(
        [
            [
                f.ranks[r].stages.get(stage, math.nan)
                if r in f.ranks and _is_sure(f.ranks[r], step_s)
                else math.nan
                for r in ranks
            ]
            for f in window
        ]
    )


def _loss(
    window: Sequence[StepFacts], rank: int, stage: int, slow: Slow, pattern: Pattern
) -> PipelineLoss:
    """The loss of a rank; its part is the one with the largest excess over other
    ranks.
    """
    more: defaultdict[Part, float] = defaultdict(float)
    for row in slow.rows:
        steps = window[row].ranks
        others = [step.parts for number, step in steps.items() if number != rank]
        for part, seconds in steps[rank].parts.items() if rank in steps else ():
            if part != "loop":
                usual = sum(parts.get(part, 0.0) for parts in others)
                more[part] += seconds - usual / max(1, len(others))
    largest = max(sorted(more.items()), key=lambda item: item[1])[0] if more else None
    return PipelineLoss(rank, stage, largest, slow, pattern)
