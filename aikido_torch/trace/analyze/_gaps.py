# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Gaps in a table of seconds, with steps as rows and ranks as columns. Pure.

A rank has no value in a step that it skipped, or of which its trace says too little.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["filled", "known_part"]

Table = NDArray[Any]  # of float64


def known_part(values: Table) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Indices of the columns with at least half of their values, of the rows with a
    value of them, and the mask of known values in these rows and columns.
    """
    known = np.isfinite(values)
    columns = np.flatnonzero(2 * known.sum(axis=0) >= max(known.shape[0], 1))
    rows = np.flatnonzero(known[:, columns].any(axis=1))
    return rows, columns, known[np.ix_(rows, columns)]


def filled(table: Table, known: NDArray[Any]) -> Table:
    """The table with gaps filled by the model: level of the row, offset of the column.

    A column alone would not do: a rank that is absent in the shorter steps would look
    late in them.
    """
    if known.all():
        return table
    gaps = np.where(known, table, math.nan)
    level = np.nanmedian(gaps, axis=1, keepdims=True)
    offset = np.nanmedian(gaps - level, axis=0, keepdims=True)
    full: Table = np.where(known, table, level + offset)
    return full
