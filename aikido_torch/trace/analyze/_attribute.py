# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Decision which ranks made the others wait in a window of steps, and why. Pure.

Each cause has a table of seconds with a row for each step: time stopped, own work, and
the paces of the links in either direction. `_detect.find` decides which columns are
slow, and describes the statistical model. A loss of own work is attributed to the part
of the step with the largest excess over the ranks that are not late.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aikido_torch.errors import ConfigError
from aikido_torch.trace.analyze._detect import (
    LEAST_SHARE,
    Finding,
    Slow,
    find,
    often_late,
    pattern_of,
)
from aikido_torch.trace.analyze._pipelines import pipeline_losses
from aikido_torch.trace.analyze._sentences import evidence_of, nothing_seen, too_short
from aikido_torch.trace.analyze._step_facts import StepFacts
from aikido_torch.trace.analyze._verdict import Cause, Culprit, Part, Pattern, Verdict

__all__ = ["attribute", "attribute_joined", "attribute_windows"]

# Largest loss that a verdict "none" may miss, as a share of a step.
VISIBLE_SHARE = 0.2
# Shortest stop that counts.
_LEAST_STOP_S = 0.002
# Patterns in the order in which a verdict prefers them.
_ORDER: tuple[Pattern, ...] = ("steady", "drifting", "rotating", "transient")
_LONGEST = 50  # largest number of steps of joined windows

_Table = NDArray[Any]


@dataclass(frozen=True)
class Loss:
    """A slow column of a table, with its rank and cause."""

    cause: Cause
    part: Part | None
    rank: int
    slow: Slow
    pattern: Pattern
    peer: int | None = None
    stage: int | None = None

    @property
    def total_s(self) -> float:
        return self.slow.total_s


def attribute(window: Sequence[StepFacts]) -> Verdict:
    """The verdict on a few steps. Deterministic.

    Args:
        window: facts of the steps, from `facts_of`; at least one.

    Raises:
        ConfigError: the window has no steps.
    """
    if not window:
        raise ConfigError(
            "attribute() needs at least one step, and the window is empty."
        )
    ranks = sorted({rank for facts in window for rank in facts.ranks})
    raw = _table(window, ranks, lambda own: own.work_s)
    stopped = _table(window, ranks, lambda own: own.stopped_s)
    work = raw - _table(window, ranks, lambda own: own.stopped_in_work_s)
    work = np.maximum(work, 0.0)
    step_s = _step_without_losses(window, raw, work)
    # Work that may contain an unseen stop gives no information about its rank.
    unsure = _table(window, ranks, lambda own: own.unsure_s)
    work = np.where(unsure >= LEAST_SHARE * step_s, math.nan, work)
    own = find(work, step_s)
    losses = _stops(stopped, ranks, step_s)
    if not losses:  # delays that follow from a stop are no losses of their own
        losses += _network(window, ranks, step_s)
    if any(own.stages for facts in window for own in facts.ranks.values()):
        found = pipeline_losses(window, ranks, step_s)
        losses += [
            Loss(
                "loop" if each.part == "loop" else "compute", each.part, each.rank,
                each.slow, each.pattern, stage=each.stage,
            )
            for each in found.losses
        ]  # fmt: skip
        own = replace(own, visible_s=found.visible_s)
    else:
        losses += _own(window, ranks, own)
    first, last = window[0].step, window[-1].step
    if not losses:
        is_short = own.visible_s > VISIBLE_SHARE * step_s
        text = too_short if is_short and len(ranks) > 1 else nothing_seen
        return Verdict(
            "too short" if text is too_short else "none", None, "none", 0.0,
            first, last, text(len(window), step_s, own.visible_s), (), own.visible_s,
        )  # fmt: skip
    return _verdict(window, losses, own.visible_s)


def attribute_windows(steps: Iterable[StepFacts], *, size: int = 5) -> list[Verdict]:
    """A verdict for each window of `size` consecutive steps."""
    steps = list(steps)
    return [attribute(steps[i : i + size]) for i in range(0, len(steps), size)]


def attribute_joined(steps: Iterable[StepFacts], *, size: int = 5) -> list[Verdict]:
    """Like `attribute_windows`, but a window that is too short is joined with the next
    ones.

    A window has at most 50 steps.
    """
    steps = list(steps)
    found, first = [], 0
    while first < len(steps):
        last = min(first + size, len(steps))
        verdict = attribute(steps[first:last])
        while (
            verdict.cause == "too short"
            and last < len(steps)
            and last - first < _LONGEST
        ):
            last = min(last + size, len(steps))
            verdict = attribute(steps[first:last])
        found.append(verdict)
        first = last
    return found


def _table(window: Sequence[StepFacts], ranks: list[int], value_of: Any) -> _Table:
    return np.array(
        [
            [value_of(f.ranks[r]) if r in f.ranks else math.nan for r in ranks]
            for f in window
        ],
        dtype=float,
    ).reshape(len(window), len(ranks))


def _step_without_losses(
    window: Sequence[StepFacts], raw: _Table, work: _Table
) -> float:
    """Seconds of a step in which all ranks work as fast as the fastest half."""
    if work.size == 0:
        return 0.0
    half = work.shape[1] - work.shape[1] // 2
    usual = float(np.nanmedian(np.sort(work, axis=1)[:, :half]))
    rest = [
        max(own.length_s for own in facts.ranks.values()) - float(np.nanmax(row))
        for facts, row in zip(window, raw, strict=True)
        if facts.ranks
    ]
    return usual + max(0.0, float(np.median(rest)) if rest else 0.0)


def _stops(stopped: _Table, ranks: list[int], step_s: float) -> list[Loss]:
    """Ranks whose process was stopped while others ran.

    If all ranks stop at once, as on a suspended machine, no rank waits for another.
    """
    half = stopped.shape[1] - stopped.shape[1] // 2
    usual = np.nan_to_num(np.sort(stopped, axis=1)[:, :half].mean(axis=1))
    more = stopped - usual[:, None] * (stopped.shape[1] > 1)
    late = (stopped >= max(LEAST_SHARE * step_s, _LEAST_STOP_S)) & (more > stopped / 2)
    if not late.any():
        return []
    found = []
    pattern = pattern_of(late)
    often = often_late(late)
    for column in np.flatnonzero(late.any(axis=0)):
        is_often = pattern != "steady" or often[column]
        rows = np.flatnonzero(late[:, column])
        lost = float(np.median(stopped[rows, column]))
        total = float(stopped[rows, column].sum())
        slow = Slow(int(column), lost, lost, 0.0, tuple(map(int, rows)), total)
        found.append(
            Loss(
                "host stopped",
                "stopped",
                ranks[column],
                slow,
                pattern if is_often else "transient",
            )
        )
    return found


# ---- own work ----


def _own(window: Sequence[StepFacts], ranks: list[int], found: Finding) -> list[Loss]:
    late = {(row, slow.column) for slow in found.slow for row in slow.rows}
    losses = []
    for slow in found.slow:
        excess = _excess_by_part(window, ranks, slow, late)
        part = _largest(excess)
        if part is None:
            shown = _inputs(window, ranks, slow, late)
            is_input = shown[0] - shown[1] > slow.lost_s / 2
            part = "input" if is_input else None
        cause: Cause = "compute"
        if part == "input" or part == "loop":
            cause = part
        if part == "input":
            own, usual = _inputs(window, ranks, slow, late)
            slow = replace(slow, own_s=own, usual_s=usual)
        losses.append(Loss(cause, part, ranks[slow.column], slow, found.pattern))
    return losses


def _largest(excess: dict[Part, float]) -> Part | None:
    if not excess:
        return None
    return max(sorted(excess.items()), key=lambda item: item[1])[0]


def _excess_by_part(
    window: Sequence[StepFacts],
    ranks: list[int],
    slow: Slow,
    late: set[tuple[int, int]],
) -> dict[Part, float]:
    """Additional seconds of each part of the step; empty if no parts were recorded."""
    more: defaultdict[Part, list[float]] = defaultdict(list)
    for row in slow.rows:
        steps = window[row].ranks
        own = steps[ranks[slow.column]].parts if ranks[slow.column] in steps else {}
        for part, seconds in own.items():
            others = [
                steps[rank].parts.get(part, 0.0)
                for column, rank in enumerate(ranks)
                if (row, column) not in late and rank in steps
            ]
            if others:
                more[part].append(seconds - sum(others) / len(others))
    return {part: float(np.median(values)) for part, values in more.items()}


def _inputs(
    window: Sequence[StepFacts],
    ranks: list[int],
    slow: Slow,
    late: set[tuple[int, int]],
) -> tuple[float, float]:
    """Seconds that the rank waits for its data, and that the other ranks wait."""
    own, usual = [], []
    for row in slow.rows:
        steps = window[row].ranks
        if ranks[slow.column] in steps:
            own.append(steps[ranks[slow.column]].input_s)
        usual += [
            steps[rank].input_s
            for column, rank in enumerate(ranks)
            if (row, column) not in late and rank in steps
        ]
    return (
        float(np.median(own)) if own else 0.0,
        float(np.median(usual)) if usual else 0.0,
    )


# ---- links ----


def _network(
    window: Sequence[StepFacts], ranks: list[int], step_s: float
) -> list[Loss]:
    pairs = sorted({pair for facts in window for pair in facts.links})
    sizes = [
        link.num_bytes
        for facts in window
        for link in facts.links.values()
        if link.num_bytes > 0
    ]
    if not sizes:
        return []
    size = float(np.median(sizes))
    paces = np.array(
        [[_pace(facts, pair) for pair in pairs] for facts in window], dtype=float
    )
    sent = Counter(sender for sender, _ in pairs)
    received = Counter(receiver for _, receiver in pairs)
    if all(sent[s] == 1 and received[t] == 1 for s, t in pairs):
        return _single_links(pairs, paces, size, step_s)
    found = []
    ends: tuple[tuple[Cause, int], ...] = (("network out", 0), ("network in", 1))
    for cause, end in ends:
        sides = _sides(pairs, paces, ranks, end)
        finding = find(sides * size, step_s)
        found += [
            Loss(
                cause, "communication", ranks[slow.column],
                replace(slow, own_s=slow.own_s / size, usual_s=slow.usual_s / size),
                finding.pattern,
            )
            for slow in finding.slow
        ]  # fmt: skip
    return _one_direction(found)


def _pace(facts: StepFacts, pair: tuple[int, int]) -> float:
    """Seconds per byte of a link."""
    link = facts.links.get(pair)
    if link is None or link.num_bytes <= 0:
        return math.nan
    return link.seconds / link.num_bytes


def _sides(
    pairs: list[tuple[int, int]], paces: _Table, ranks: list[int], end: int
) -> _Table:
    """Paces of the data that each rank sends (`end` 0) or receives (1), by step and
    rank.

    A slow end makes all links of its direction slow, but half of the other ends may be
    slow too. So the lower quartile of the links counts.
    """
    sides = np.full((paces.shape[0], len(ranks)), math.nan)
    for column, rank in enumerate(ranks):
        own = [i for i, pair in enumerate(pairs) if pair[end] == rank]
        if own:
            ordered = np.sort(paces[:, own], axis=1)  # NaN is sorted last
            sides[:, column] = ordered[:, len(own) // 4]
    return sides


def _single_links(
    pairs: list[tuple[int, int]], paces: _Table, size: float, step_s: float
) -> list[Loss]:
    """Slow links whose sender has no other receiver and whose receiver no other
    sender.
    """
    finding = find(paces * size, step_s)
    return [
        Loss(
            "network", "communication", pairs[slow.column][0],
            replace(slow, own_s=slow.own_s / size, usual_s=slow.usual_s / size),
            finding.pattern, pairs[slow.column][1],
        )
        for slow in finding.slow
    ]  # fmt: skip


def _one_direction(losses: list[Loss]) -> list[Loss]:
    """Keeps for each rank only the direction with the larger loss.

    Acknowledgements travel in the opposite direction. If they queue, the healthy
    direction is slower too, but less.
    """
    best: dict[int, Loss] = {}
    for loss in losses:
        before = best.get(loss.rank)
        if before is None or loss.total_s > before.total_s:
            best[loss.rank] = loss
    return list(best.values())


# ---- from losses to a verdict ----


def _verdict(
    window: Sequence[StepFacts], losses: list[Loss], visible_s: float
) -> Verdict:
    pattern = min((loss.pattern for loss in losses), key=_ORDER.index)
    alike = ("steady", "drifting") if pattern in ("steady", "drifting") else (pattern,)
    named = sorted(
        (loss for loss in losses if loss.pattern in alike),
        key=lambda loss: (-loss.total_s, loss.rank),
    )
    top = named[0]
    if pattern in ("rotating", "transient"):
        named = [loss for loss in named if loss.cause == top.cause]
    total = sum(loss.total_s for loss in named)
    culprits = tuple(
        Culprit(
            rank=loss.rank,
            cause=loss.cause,
            part=loss.part,
            lost_s=loss.slow.lost_s,
            share=loss.total_s / total,
            num_steps=len(loss.slow.rows),
            peer=loss.peer,
            stage=loss.stage,
        )
        for loss in named
    )
    ranks = {culprit.rank for culprit in culprits}
    is_one = len(ranks) == 1 and top.peer is None and pattern != "rotating"
    return Verdict(
        cause=top.cause,
        rank=top.rank if is_one else None,
        pattern=top.pattern,
        lost_s=top.slow.lost_s,
        first_step=window[0].step,
        last_step=window[-1].step,
        evidence=evidence_of(named, len(window)),
        culprits=culprits,
        visible_s=visible_s,
    )
