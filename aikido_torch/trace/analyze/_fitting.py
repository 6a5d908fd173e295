# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Tables that fit into a terminal by omitting columns instead of cutting text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

__all__ = ["Column", "fitting", "spans_of"]

# Least width of a text column; its words wrap.
_NARROWEST = 24


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its heading.
        cells: texts of all rows.
        importance: columns with the smallest value are omitted first.
        is_text: True if it is left-aligned and may wrap.
    """

    title: str
    cells: list[str] = field(default_factory=list)
    importance: float = 1.0
    is_text: bool = False

    @property
    def width(self) -> int:
        longest = max((len(line) for line in (self.title, *self.cells)), default=0)
        return min(longest, _NARROWEST) if self.is_text else longest


def fitting(title: str, columns: Sequence[Column], width: int) -> Table:
    """A table of the columns that fit, with a caption about omitted columns.

    Args:
        title: text above the table.
        columns: all with the same number of cells; the first one always stays.
        width: width of the terminal in characters.
    """
    kept = list(range(len(columns)))

    def needed() -> int:
        return 1 + sum(columns[i].width + 3 for i in kept)

    left_out = []
    while needed() > width and len(kept) > 1:
        least = min(kept[1:], key=lambda i: (columns[i].importance, -i))
        kept.remove(least)
        left_out.append(columns[least].title)
    table = Table(title=Text(title), title_justify="left", caption_justify="left")
    if left_out:
        table.caption = Text(
            f"{len(left_out)} more column{'s' if len(left_out) > 1 else ''} in a wider "
            f"terminal, or with COLUMNS=200."
        )
    for i in kept:
        column = columns[i]
        table.add_column(
            Text(column.title),
            justify="left" if column.is_text else "right",
            no_wrap=not column.is_text,
            overflow="fold",
        )
    for row in zip(*(columns[i].cells for i in kept), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def spans_of(numbers: Sequence[int]) -> str:
    """Ascending numbers in short form: "0, 4-7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
