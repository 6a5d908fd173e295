# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""From what the ranks of a training saw to the figures that a user cares about. Pure.

The share is that part of all contributions that is in the sums. Progress is share times
steps per second: n times the batch size times progress is samples per second.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.straggler_cases import records
from benchmarks.straggler_cases.case import CaseError
from benchmarks.straggler_cases.runs import Record

# A rank that is in all but this much of the sums of a step is wholly in it.
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run of a training loop, without its warm-up.

    A step is done when more than half of the ranks have it, so the model has advanced.
    """

    seconds: float
    tail_s: float  # from the end of the last step until the last rank has it, too
    steps_per_second: float
    share: float
    share_by_rank: tuple[float, ...]
    longest_skips_by_rank: tuple[int, ...]  # steps in a row without all of its elements
    accuracy: float | None  # of the test pictures after the last step
    curve: tuple[tuple[float, float], ...] = ()  # seconds from the start, accuracy

    @property
    def progress(self) -> float:
        """Per second: the steps whose sums have all contributions, or parts of them."""
        return self.share * self.steps_per_second

    def accuracy_after(self, seconds: float) -> float:
        """Of the last evaluation up to then; 0 if there was none."""
        return max((at for at in self.curve if at[0] <= seconds), default=(0.0, 0.0))[1]


def figures_of(record: Record) -> Figures:
    """Raises CaseError if the record has no step behind its warm-up."""
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
    """The last look comes after the clock has stopped: it is that of the last step."""
    seen = record.by_rank[0]
    total = seen["ends"][-1] - seen["begins"][0]
    return tuple(
        (total if look["seconds"] is None else look["seconds"], look["accuracy"])
        for look in looks
    )


def contributions(record: Record) -> list[list[float]]:
    """By step and rank, the part of the sums that has the rank in it.

    All ranks see the same, but a rank that has copied a state has not seen the steps
    before it. What nobody has seen counts as lost, and without a policy nothing is.
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
    """How many true ones there are in a row at most."""
    longest = current = 0
    for value in values:
        current = current + 1 if value else 0
        longest = max(longest, current)
    return longest


@dataclass(frozen=True)
class AfterPause:
    """What one pause of one rank has cost.

    Attributes:
        steps_until_back: steps of the others from the rank's waking up to the first
            one that has all of its contribution.
        lost: contributions of all ranks that are in no sum, after the warm-up.
        seconds: that the pause was to last.
    """

    steps_until_back: int
    lost: float
    seconds: float


def after_pause(record: Record) -> AfterPause:
    """Of a block in which one rank slept in one step.

    Raises CaseError if no rank has slept, because it had passed over that step.
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


# ---- Arms: the runs of one name ------------------------------------------------------


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
        """Of two arms, turn by turn: neighbours meet the same state of the machine."""
        pairs = zip(self.runs(name), self.runs(reference), strict=True)
        return [figure(own) / figure(other) for own, other in pairs]

    def best(self, names: Iterable[str]) -> tuple[str, float]:
        """The arm with the most progress among those, by its median."""
        progress = {name: self.median(name, lambda run: run.progress) for name in names}
        name = max(progress, key=progress.__getitem__)
        return name, progress[name]

    def note(self) -> str:
        """One sentence part per arm."""
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
