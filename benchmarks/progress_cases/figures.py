# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Figures that matter to users, from the observations of the ranks of a training. Pure.

The share is the part of all contributions that is in the sums. Progress is share times
steps per second: n times the batch size times progress is samples per second.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.straggler_cases import records
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.runs import Record

# A rank that lacks at most this share of a step's sums counts as fully present.
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run of a training loop, without its warm-up.

    A step is done when more than half of the ranks have done it, because the model has
    advanced then.
    """

    seconds: float
    tail_s: float  # from the end of the last step until the last rank has done it, too
    steps_per_second: float
    share: float
    share_by_rank: tuple[float, ...]
    longest_skips_by_rank: tuple[int, ...]  # steps in a row without all of its elements
    accuracy: float | None  # accuracy on the test pictures after the last step
    # Pairs of seconds from the start and accuracy.
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def progress(self) -> float:
        """Full steps per second; a step counts by its share of contributions."""
        return self.share * self.steps_per_second

    def accuracy_after(self, seconds: float) -> float:
        """Accuracy of the last evaluation up to then; 0 if there was none."""
        return max((at for at in self.curve if at[0] <= seconds), default=(0.0, 0.0))[1]


def figures_of(record: Record) -> Figures:
    """Figures of a record. Raises CaseError if it has no step after its warm-up."""
    block = record.block
    ranks = [record.by_rank[rank] for rank in block.members()]
    if block.ops <= block.warm_up or any(len(r["ends"]) < block.ops for r in ranks):
        raise CaseError(f"'{block.name}' has no step that counts")
    ends = records.step_ends(record)
    seconds = ends[-1] - ends[block.warm_up - 1]
    steps = block.ops - block.warm_up
    by_step = contributions(record)[block.warm_up :]
    by_rank = tuple(statistics.fmean(own) for own in zip(*by_step, strict=True))
    curve = record.by_rank[0]["curve"]
    return Figures(
        seconds=seconds,
        tail_s=max(rank["ends"][-1] for rank in ranks) - ends[-1],
        steps_per_second=steps / seconds,
        share=statistics.fmean(by_rank),
        share_by_rank=by_rank,
        longest_skips_by_rank=tuple(
            longest_run(part < 1 - _ROUNDING for part in own)
            for own in zip(*by_step, strict=True)
        ),
        accuracy=curve[-1]["accuracy"] if curve else None,
        curve=_curve(record, curve),
    )


def _curve(record: Record, looks: Sequence[dict]) -> tuple[tuple[float, float], ...]:
    """Accuracy over time; the last evaluation, after the clock stopped, is that of the
    last step.
    """
    seen = record.by_rank[0]
    total = seen["ends"][-1] - seen["begins"][0]
    return tuple(
        (total if look["seconds"] is None else look["seconds"], look["accuracy"])
        for look in looks
    )


def contributions(record: Record) -> list[list[float]]:
    """By step and rank, the part of the sums that contains the rank.

    All ranks see the same, but a rank that has copied a state has not seen the steps
    before it. A contribution that no rank has seen counts as lost. Without a policy
    none is lost.
    """
    members = record.block.members()
    size = len(members)
    if not any(record.by_rank[rank]["contributed"] for rank in members):
        return [[1.0] * size for _ in range(record.block.ops)]
    found = []
    for step in range(record.block.ops):
        seen = (
            own[step]
            for rank in members
            if step < len(own := record.by_rank[rank]["contributed"])
        )
        found.append(next((each for each in seen if each is not None), [0.0] * size))
    return found


def longest_run(values: Iterable[bool]) -> int:
    """Length of the longest run of true values."""
    longest = current = 0
    for value in values:
        current = current + 1 if value else 0
        longest = max(longest, current)
    return longest


@dataclass(frozen=True)
class AfterPause:
    """Cost of one pause of one rank.

    Attributes:
        steps_until_back: steps of the others from the rank's wake-up to the first step
            with all of its contribution.
        lost: contributions of all ranks that are in no sum, after the warm-up.
        seconds: planned length of the pause.
    """

    steps_until_back: int
    lost: float
    seconds: float


def after_pause(record: Record) -> AfterPause:
    """Cost of the pause in a block in which one rank slept in one step.

    Raises CaseError if no rank has slept, because it had skipped that step.
    """
    pauses = [
        (rank, moment)
        for rank in record.block.members()
        for _, moment in record.by_rank[rank]["paused"]
    ]
    if len(pauses) != 1:
        raise CaseError(f"'{record.block.name}' has {len(pauses)} pauses, not one")
    ((rank, woke_up),) = pauses
    by_step = contributions(record)
    done = sum(end <= woke_up for end in records.step_ends(record))
    later = range(done, record.block.ops)
    back = next((s for s in later if by_step[s][rank] >= 1 - _ROUNDING), later.stop)
    return AfterPause(
        steps_until_back=back - done,
        lost=sum(1 - part for step in by_step[record.block.warm_up :] for part in step),
        seconds=max(record.block.pauses[rank]),
    )


# ---- arms: the runs of one name ------------------------------------------------------


class Arms:
    """The figures of all runs of a case, by the name of their block."""

    def __init__(self, found: Iterable[Record]):
        self._runs: dict[str, list[Figures]] = {}
        for record in found:
            self._runs.setdefault(record.block.name, []).append(figures_of(record))

    def names(self) -> list[str]:
        return list(self._runs)

    def runs(self, name: str) -> list[Figures]:
        if name not in self._runs:
            raise CaseError(f"no block is named {name!r}")
        return self._runs[name]

    def median(self, name: str, figure: Callable[[Figures], float]) -> float:
        return statistics.median(figure(run) for run in self.runs(name))

    def ratios(
        self, name: str, reference: str, figure: Callable[[Figures], float]
    ) -> list[float]:
        """Ratios of two arms, turn by turn, because neighbours have the same machine
        state.
        """
        pairs = zip(self.runs(name), self.runs(reference), strict=True)
        return [figure(own) / figure(other) for own, other in pairs]

    def best(self, names: Iterable[str]) -> tuple[str, float]:
        """The arm with the most progress among `names`, by its median."""
        progress = {name: self.median(name, lambda run: run.progress) for name in names}
        name = max(progress, key=progress.__getitem__)
        return name, progress[name]

    def note(self) -> str:
        """One phrase per arm."""
        return "; ".join(map(self._told, self._runs))

    def _told(self, name: str) -> str:
        def median(figure: str) -> float:
            return self.median(name, lambda run: getattr(run, figure))

        runs = self.runs(name)
        text = f"{name}: progress {median('progress'):.4g}, "
        text += f"{median('steps_per_second'):.4g} steps/s, share {median('share'):.3f}"
        longest = [max(run.longest_skips_by_rank) for run in runs]
        if max(longest) > 0:
            text += f", longest run of skips {' '.join(map(str, longest))}"
        accuracy = [run.accuracy for run in runs if run.accuracy is not None]
        if accuracy:
            text += f", final accuracy {statistics.fmean(accuracy):.3f}"
        return text

    def as_json(self) -> dict[str, Any]:
        """By arm, one object for each run."""
        return {
            name: [
                {
                    "progress": round(run.progress, 4),
                    "steps_per_second": round(run.steps_per_second, 4),
                    "seconds": round(run.seconds, 4),
                    "tail_s": round(run.tail_s, 4),
                    "share": round(run.share, 5),
                    "share_by_rank": [round(share, 5) for share in run.share_by_rank],
                    "longest_skips_by_rank": list(run.longest_skips_by_rank),
                    "accuracy": run.accuracy,
                    "curve": [
                        [round(at, 3), round(accuracy, 4)] for at, accuracy in run.curve
                    ],
                }
                for run in runs
            ]
            for name, runs in self._runs.items()
        }
