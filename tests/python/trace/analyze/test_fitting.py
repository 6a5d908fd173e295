# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import io

import pytest
from rich.console import Console

from aikido_torch.trace.analyze._fitting import Column, fitting, spans_of


def printed(columns, width):
    out = io.StringIO()
    Console(file=out, width=width).print(fitting("A title", columns, width))
    return out.getvalue()


COLUMNS = [
    Column("rank", ["0", "1"]),
    Column("note", ["skipped in 6 of 6 calls", ""], importance=9, is_text=True),
    Column("rare", ["12,345.67", "1"], importance=0.5),
    Column("usual", ["1,234.5", "2"], importance=2),
]


def test_a_table_that_fits_has_all_columns():
    text = printed(COLUMNS, 80)
    for column in COLUMNS:
        assert column.title in text
    assert "more column" not in text


@pytest.mark.parametrize("width", [46, 50, 54])
def test_the_least_important_column_goes_first_and_no_cell_is_cut(width):
    text = printed(COLUMNS, width)
    assert "…" not in text
    assert "rare" not in text
    assert "1,234.5" in text
    assert "1 more column" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_the_first_column_always_stays():
    assert "rank" in printed(COLUMNS, 20)


def test_brackets_in_cells_are_not_read_as_markup():
    assert "[red]x" in printed([Column("a", ["[red]x"])], 80)


def test_consecutive_ranks_are_abbreviated():
    assert spans_of([0, 4, 5, 6, 7, 9]) == "0, 4-7, 9"
    assert spans_of([]) == ""
