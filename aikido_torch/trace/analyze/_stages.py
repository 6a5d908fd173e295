# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Evaluation of traces of a pipeline: stages, micro-batches and bubbles. Pure.

`aikido_torch.pipeline` records a section for each instruction, named "KIND stage S
micro-batch M", and a section "pipeline run" for each run of the schedule. A run is one
step.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import mean, median
from typing import NamedTuple

from aikido_torch.trace.analyze._verdict import Part
from aikido_torch.trace.record._dump import Dump
from aikido_torch.trace.record._spans import Kind, Span

__all__ = ["PipelineSummary", "StageSummary", "StageWork", "pipeline_of", "stage_works"]

RUN = "pipeline run"
_NAME = re.compile(r"([a-z_]+) stage (\d+)(?: micro-batch (\d+))?")
_PLANNED = re.compile(r"planned stage (\d+): (\d+) ns")
# Part of the step by kind of instruction.
_PARTS: dict[str, Part] = {
    "forward": "forward",
    "recompute": "forward",
    "backward": "backward",
    "input_gradient": "backward",
    "weight_gradient": "backward",
    "step": "optimizer",
}


class Labelled(NamedTuple):
    """Content of the name of a section."""

    kind: str
    stage: int
    micro_batch: int  # -1 if there is none


def label_of(name: str) -> Labelled | None:
    """Parses the name of a section; None if it belongs to no stage of a pipeline."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Labelled(match[1], int(match[2]), -1 if match[3] is None else int(match[3]))


@dataclass
class StageWork:
    """One step of one rank of a pipeline, in seconds.

    Attributes:
        length_s: length of the run of the schedule.
        before_s: from the end of the run before to the begin of this run.
        stages: by stage: seconds by part, without stops.
        num_micro_batches: by stage: number of forwards of this rank.
        planned_s: by stage: planned seconds on one machine.
    """

    length_s: float
    before_s: float = 0.0
    stages: dict[int, dict[Part, float]] = field(default_factory=dict)
    num_micro_batches: dict[int, int] = field(default_factory=dict)
    planned_s: dict[int, float] = field(default_factory=dict)

    @property
    def busy_s(self) -> float:
        return sum(sum(parts.values()) for parts in self.stages.values())


def stage_works(dump: Dump) -> dict[int, StageWork]:
    """Work by step; empty for a rank without a pipeline."""
    runs = sorted(
        s
        for s in dump.spans
        if s.kind == Kind.SECTION and dump.names[s.name] == RUN and s.step >= 0
    )
    found: dict[int, StageWork] = {}
    before: Span | None = None
    for run in runs:
        gap = 0 if before is None else max(0, run.begin_ns - before.end_ns)
        found[run.step] = StageWork((run.end_ns - run.begin_ns) / 1e9, gap / 1e9)
        before = run
    if not found:
        return {}
    stops = [s for s in dump.spans if s.kind == Kind.STOP]
    for span in dump.spans:
        if span.kind != Kind.SECTION or span.step not in found:
            continue
        if planned := _PLANNED.fullmatch(dump.names[span.name]):
            found[span.step].planned_s[int(planned[1])] = int(planned[2]) / 1e9
        label = label_of(dump.names[span.name])
        if label is None or label.kind not in _PARTS:
            continue
        stopped = sum(
            max(0, min(s.end_ns, span.end_ns) - max(s.begin_ns, span.begin_ns))
            for s in stops
        )
        work = found[span.step]
        parts = work.stages.setdefault(label.stage, {})
        part = _PARTS[label.kind]
        seconds = max(0, span.end_ns - span.begin_ns - stopped) / 1e9
        parts[part] = parts.get(part, 0.0) + seconds
        if label.kind == "forward":
            count = work.num_micro_batches.get(label.stage, 0)
            work.num_micro_batches[label.stage] = count + 1
    return found


@dataclass(frozen=True)
class StageSummary:
    """One stage of a pipeline; times are medians over its ranks and steps.

    Attributes:
        stage: its number.
        ranks: ranks that have it.
        forward_ms: milliseconds of one micro-batch.
        backward_ms: milliseconds of one micro-batch.
        optimizer_ms: milliseconds of one step.
        bubble: share of the runs in which its ranks computed nothing.
    """

    stage: int
    ranks: tuple[int, ...]
    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    bubble: float


@dataclass(frozen=True)
class PipelineSummary:
    """A pipeline in a trace.

    Attributes:
        stages: summaries by number.
        bubble: share of the time of all ranks in which nothing was computed.
        slowest: the stage that takes longest for a micro-batch, with its ranks sharing
            the micro-batches.
        imbalance: its time divided by the mean of the stages, minus 1; 0 is an even
            cut.
    """

    stages: tuple[StageSummary, ...]
    bubble: float
    slowest: int
    imbalance: float


def pipeline_of(dumps: Iterable[Dump]) -> PipelineSummary | None:
    """Summary of the pipeline; None if no rank has a pipeline."""
    works = {dump.rank: stage_works(dump) for dump in dumps}
    steps = {rank: list(by_step.values()) for rank, by_step in works.items() if by_step}
    ranks_of: defaultdict[int, set[int]] = defaultdict(set)
    for rank, own in steps.items():
        for work in own:
            for stage in work.stages:
                ranks_of[stage].add(rank)
    if not ranks_of:
        return None
    stages = [_stage(s, sorted(ranks_of[s]), steps) for s in sorted(ranks_of)]
    # Replicas share the micro-batches.
    costs = {s.stage: (s.forward_ms + s.backward_ms) / len(s.ranks) for s in stages}
    slowest = max(costs, key=lambda stage: (costs[stage], -stage))
    usual = mean(costs.values())
    busy = sum(work.busy_s for own in steps.values() for work in own)
    length = sum(work.length_s for own in steps.values() for work in own)
    return PipelineSummary(
        stages=tuple(stages),
        bubble=_share_idle(busy, length),
        slowest=slowest,
        imbalance=costs[slowest] / usual - 1 if usual > 0 else 0.0,
    )


def _share_idle(busy_s: float, length_s: float) -> float:
    return max(0.0, 1 - busy_s / length_s) if length_s > 0 else 0.0


def _stage(
    stage: int, ranks: list[int], steps: dict[int, list[StageWork]]
) -> StageSummary:
    own = [work for rank in ranks for work in steps[rank] if stage in work.stages]

    def middle_ms(part: Part) -> float:
        return 1e3 * median(
            work.stages[stage].get(part, 0.0)
            / max(1, work.num_micro_batches.get(stage, 0))
            for work in own
        )

    return StageSummary(
        stage=stage,
        ranks=tuple(ranks),
        forward_ms=middle_ms("forward"),
        backward_ms=middle_ms("backward"),
        optimizer_ms=median(w.stages[stage].get("optimizer", 0.0) for w in own) * 1e3,
        bubble=_share_idle(
            sum(work.busy_s for work in own), sum(work.length_s for work in own)
        ),
    )
