# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Seconds per step, moves and losses, from the observations of the ranks. Pure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.reassign_cases.plan import Array, Training
from benchmarks.straggler_cases.case import CaseError, Row

ARMS_KEY = "arms"  # of the rows' further details


@dataclass
class Record:
    """One training as observed by all ranks. Times are by the machine's clock."""

    training: Training
    by_rank: dict[int, dict[str, Any]] = field(default_factory=dict)

    def check(self) -> None:
        """Raises CaseError unless all ranks ended with the same parameters."""
        found = {rank: seen["fingerprint"] for rank, seen in self.by_rank.items()}
        if len(found) != self.training.num_ranks or len(set(found.values())) != 1:
            raise CaseError(
                f"the ranks of '{self.training.arm}' ended with different parameters: "
                f"{found}"
            )

    @property
    def step_s(self) -> float:
        """Mean seconds of a measured step, until the last rank has ended it."""
        first = self.training.warm_up - 1
        ends = [seen["ends"] for seen in self.by_rank.values()]
        begin, end = (max(each[step] for each in ends) for step in (first, -1))
        return float(end - begin) / self.training.steps

    @property
    def over_ideal(self) -> float:
        """Seconds of the measured steps, divided by the ideal."""
        return self.step_s * self.training.steps / self.training.ideal_s()

    @property
    def moved(self) -> int:
        """Micro-batches of the measured steps that another rank computed."""
        return sum(seen["taken"] for seen in self.by_rank.values())

    @property
    def losses(self) -> Array:
        """Mean loss of each step, the first ones included."""
        total = np.sum([seen["losses"] for seen in self.by_rank.values()], axis=0)
        return np.asarray(total / self.training.step_items)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Medians over the turns of an arm."""

    arm: str
    step_ms: float
    over_ideal: float
    moved: float  # micro-batches per step
    turns_over_ideal: tuple[float, ...]


class Turns:
    """The records of a case, by arm and in the order of the turns."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._by_arm: dict[str, list[Record]] = {}
        for record in records:
            self._by_arm.setdefault(record.training.arm, []).append(record)

    def of(self, arm: str) -> list[Record]:
        if arm not in self._by_arm:
            raise CaseError(f"no training has the arm {arm!r}")
        return self._by_arm[arm]

    def over(self, arm: str, other: str) -> float:
        """Time of an arm divided by that of another one, median over the turns."""
        pairs = zip(self.of(arm), self.of(other), strict=True)
        return statistics.median(own.step_s / their.step_s for own, their in pairs)

    def median(self, arm: str, value: Callable[[Record], float]) -> float:
        return statistics.median(value(record) for record in self.of(arm))

    def overhead_ms(self, arm: str) -> float:
        """Mean ms between two micro-batches, more if the second one is a taken one."""
        mean = {
            what: _share(
                (
                    (seen["gap_s"][what], seen["gaps"][what])
                    for record in self.of(arm)
                    for seen in record.by_rank.values()
                ),
                what,
            )
            for what in ("own", "taken")
        }
        return 1e3 * (mean["taken"] - mean["own"])

    def arms(self) -> list[Arm]:
        return [
            Arm(
                arm=arm,
                step_ms=1e3 * self.median(arm, lambda record: record.step_s),
                over_ideal=self.median(arm, lambda record: record.over_ideal),
                moved=self.median(arm, lambda record: record.moved)
                / records[0].training.steps,
                turns_over_ideal=tuple(record.over_ideal for record in records),
            )
            for arm, records in self._by_arm.items()
        ]

    def details(self) -> dict[str, Any]:
        """For the rows of the case; `arms_table` shows them."""
        return {ARMS_KEY: [asdict(arm) for arm in self.arms()]}


def _share(pairs: Iterable[tuple[float, int]], what: str) -> float:
    totals, counts = zip(*pairs, strict=True)
    if not sum(counts):
        raise CaseError(f"no {what} micro-batch followed another one in its step")
    return float(sum(totals)) / sum(counts)


def distance_of_curves(own: Sequence[Array], other: Sequence[Array]) -> float:
    """Largest distance of two mean loss curves in a step, in units of the noise.

    Args:
        own: loss of each step, for each seed.
        other: the same of the curves to compare with. Their standard deviation over the
            seeds is the noise.
    """
    noise = np.std(other, axis=0, ddof=1)
    return float((np.abs(np.mean(own, axis=0) - np.mean(other, axis=0)) / noise).max())


def arms_table(rows: Iterable[Row]) -> Table:
    """Every arm of the cases beside the ideal, and the verdicts on the cases."""
    table = Table(title="arms: medians over the turns", title_justify="left")
    table.add_column("case")
    table.add_column("arm")
    for name in ("ms per step", "over ideal", "moved per step"):
        table.add_column(name, justify="right")
    for row in rows:
        if ARMS_KEY not in row.extra:
            continue
        case = row.result.case.partition(":")[0]
        for arm in row.extra[ARMS_KEY]:
            table.add_row(
                case,
                arm["arm"],
                f"{arm['step_ms']:.4g}",
                f"{arm['over_ideal']:.3f}",
                f"{arm['moved']:.3g}",
            )
            case = ""
    return table
