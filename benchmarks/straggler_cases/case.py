# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A case: bars that are fixed in advance, and a function that measures against them.

Pure, except for the measurements of the cases themselves. A case that fails gives rows
that do not hold, with the reason, and the other cases run on.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

from benchmarks import common


class CaseError(Exception):
    """A case could not be measured; the text is one sentence for its rows."""


class NotSupportedError(CaseError):
    """The measured feature does not exist in this version."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """value / reference must be at most `bar`, or at least `bar` for `higher`."""

    what: str  # name of the value, such as "op, back to back"
    of: str  # name of the reference, such as "4 healthy ranks"
    bar: float
    unit: str = "ms"
    better: str = "lower"

    @property
    def text(self) -> str:
        if self.of == "none":
            return "none"
        return f"{'≥' if self.better == 'higher' else '≤'} {self.bar:g} of {self.of}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A result with Gloo's figure beside it and further details for readers."""

    result: common.Result
    of: str
    gloo: float | None = None
    note: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    better: str = "lower"
    failed: str | None = None  # reason why there is no figure

    @property
    def bound(self) -> float | None:
        """The limit of the value: reference times bar."""
        result = self.result
        if result.bar is None or not math.isfinite(result.reference):
            return None
        return result.reference * result.bar

    @property
    def verdict(self) -> str:
        if self.result.holds is None:
            return self.failed or "-"
        if self.failed:
            return f"failed: {self.failed}"
        return "holds" if self.result.holds else "missed"

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self.result) | {
            "compared_with": self.of,
            "bound": self.bound,
            "gloo": self.gloo,
            "verdict": self.verdict,
            "note": self.note,
            **self.extra,
        }


@dataclass(frozen=True, kw_only=True)
class Context:
    """Options and callbacks of the run of a case."""

    is_full: bool
    seed: int
    on_progress: Callable[[float], None]  # called with the share that is done
    # Called with the observations of a block's ranks.
    on_record: Callable[[dict[str, Any]], None]

    def pick(self, quick: int, full: int) -> int:
        return full if self.is_full else quick


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    what: str  # one line for --list
    bars: tuple[Bar, ...]
    measure: Callable[["Case", Context], list[Row]]

    def judge(
        self,
        number: int,
        *,
        value: float,
        reference: float,
        gloo: float | None = None,
        note: str = "",
        **extra: Any,
    ) -> Row:
        """The row of the bar with that number."""
        bar = self.bars[number]
        return Row(
            result=common.Result.judge(
                f"{self.name}: {bar.what}",
                unit=bar.unit,
                value=value,
                reference=reference,
                bar=bar.bar,
                better="higher" if bar.better == "higher" else "lower",
            ),
            of=bar.of,
            gloo=gloo,
            note=note,
            extra=extra,
            better=bar.better,
        )

    def show(
        self,
        what: str,
        *,
        value: float,
        unit: str,
        gloo: float | None = None,
        note: str = "",
    ) -> Row:
        """A figure without a bar."""
        result = common.Result.judge(
            f"{self.name}: {what}", unit=unit, value=value, reference=value, bar=None
        )
        return Row(result=result, of="", gloo=gloo, note=note)

    def failed(self, error: CaseError) -> list[Row]:
        """A row for each of its bars."""
        return [self.failed_row(number, error) for number in range(len(self.bars))]

    def failed_row(self, number: int, error: CaseError) -> Row:
        """A row that does not hold; without a verdict if the measured feature does not
        exist yet.
        """
        bar, is_open = self.bars[number], isinstance(error, NotSupportedError)
        return Row(
            result=common.Result(
                case=f"{self.name}: {bar.what}",
                unit=bar.unit,
                value=math.nan,
                reference=math.nan,
                ratio=math.nan,
                bar=None if is_open else bar.bar,
                holds=None if is_open else False,
            ),
            of=bar.of,
            better=bar.better,
            failed=str(error),
        )


# ---- output ------------------------------------------------------------------------


def list_table(cases: Iterable[Case], *, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("case", "what", "figure", "bar"):
        table.add_column(column)
    for case in cases:
        for number, bar in enumerate(case.bars):
            head = (case.name, case.what) if number == 0 else ("", "")
            table.add_row(*head, bar.what, bar.text)
    return table


def result_table(rows: Sequence[Row], *, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    for column in ("value", "bound", "ratio", "bar", "gloo"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict")
    for row in rows:
        result = row.result
        sign = "≥" if row.better == "higher" else "≤"
        table.add_row(
            result.case,
            _figure(result.value, result.unit),
            "" if row.bound is None else f"{sign} {_figure(row.bound, result.unit)}",
            "" if result.bar is None else _figure(result.ratio),
            "" if result.bar is None else f"{result.bar:g}",
            "" if row.gloo is None else _figure(row.gloo, result.unit),
            ("[bold red]{}[/]" if result.holds is False else "{}").format(
                escape(row.verdict)
            ),
        )
    return table


def notes(rows: Iterable[Row]) -> list[str]:
    return [f"{row.result.case}: {row.note}" for row in rows if row.note]


def _figure(value: float, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:.4g} {unit}".rstrip()
