# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The dicts of the native module have exactly the fields of their types."""

import types
from typing import get_type_hints

from aikido_torch import _C, _rows
from aikido_torch._backend import backend_of


def differences(row, kind):
    hints = get_type_hints(kind)
    found = [f"{name} is only in one" for name in sorted(row.keys() ^ hints.keys())]
    for name in sorted(row.keys() & hints.keys()):
        hint = getattr(hints[name], "__origin__", hints[name])
        kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
        if type(row[name]) not in kinds:
            found.append(f"{name} is a {type(row[name]).__name__}, no {hint}")
    return found


def test_rows_match_their_types(group_of_one):
    assert differences(_C.build_info(), _rows.BuildInfo) == []
    for row in _C.settings_table():
        assert differences(row, _rows.SettingRow) == []
    assert differences(backend_of(None).counters, _rows.Counters) == []


def test_a_difference_is_found():
    row = dict(_C.build_info(), cuda=1, more=2)
    del row["torch"]
    assert differences(row, _rows.BuildInfo) == [
        "more is only in one",
        "torch is only in one",
        "cuda is a int, no <class 'bool'>",
    ]
