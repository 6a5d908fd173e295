# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The table of settings in C++ and the options in Python are the same list."""

import dataclasses
import re
import typing
from pathlib import Path

from aikido_torch import _C
from aikido_torch.options import Options
from rules import tree

_VARIABLE = re.compile(r"\bAIKIDO_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
# Variables that setup.py reads and passes to CMake.
_BUILD = ("TORCH", "CUDA", "TESTS", "BENCHMARKS", "SANITIZE", "WERROR")


def differences(rows: list[dict], options: type) -> list[str]:
    fields = {field.name: field for field in dataclasses.fields(options)}
    table = {row["option"]: row for row in rows}
    found = [f"option {name} is missing in Python" for name in table.keys() - fields]
    found += [f"option {name} is missing in C++" for name in fields.keys() - table]
    found += [f"{row['name']} is called {row['option']}" for row in rows
              if row["name"].replace(".", "_") != row["option"]]  # fmt: skip
    found += [f"{row['name']} has variable {row['variable']}" for row in rows
              if "AIKIDO_" + row["option"].upper() != row["variable"]]  # fmt: skip
    types = typing.get_type_hints(options)
    for name in table.keys() & fields:
        kind = type(table[name]["default"])
        if types[name] != (kind | None):
            found.append(f"option {name} is {types[name]} in Python, {kind} in C++")
        if fields[name].default is not None:
            found.append(f"option {name} has a default in Python; C++ has it")
    if list(table) != list(fields):
        found.append("the order of the settings differs")
    return found


def unknown_variables(root: Path, known: set[str]) -> list[str]:
    """Variables in documents or Python files that the table does not contain."""
    paths = [
        *root.glob("*.md"),
        *tree.files(root, "aikido_torch", "benchmarks", "docs"),
    ]
    paths += [path for path in tree.files(root, "csrc") if path.suffix == ".md"]
    return [
        f"{path.relative_to(root)}: {name} is no setting"
        for path in paths
        for name in sorted(set(_VARIABLE.findall(path.read_text())) - known)
    ]


def test_the_table_and_the_options_are_the_same():
    assert differences(_C.settings_table(), Options) == []


def test_no_document_names_a_variable_that_does_not_exist():
    known = {row["variable"] for row in _C.settings_table()}
    known |= {f"AIKIDO_{name}" for name in _BUILD}
    known |= {"AIKIDO_CHECK", "AIKIDO_TRY", "AIKIDO_SYSCALL"}
    assert unknown_variables(tree.REPOSITORY, known) == []


def test_defaults_lie_in_their_ranges_and_every_setting_is_explained():
    for row in _C.settings_table():
        assert len(row["help"].split()) > 3
        if row["minimum"] is not None:
            assert row["minimum"] <= row["default"] <= row["maximum"]


def test_settings_that_differ_are_named():
    @dataclasses.dataclass
    class Other:
        a_b: int | None = None
        c_d: str | None = "x"
        e_f: int | None = None

    rows = [
        {"name": "c.d", "option": "c_d", "variable": "AIKIDO_C_D", "default": 1},
        {"name": "a.b", "option": "a_b", "variable": "AIKIDO_B", "default": 1},
        {"name": "g.h", "option": "g_h", "variable": "AIKIDO_G_H", "default": 1},
    ]
    found = differences(rows, Other)
    assert "option g_h is missing in Python" in found
    assert "option e_f is missing in C++" in found
    assert "a.b has variable AIKIDO_B" in found
    assert "option c_d has a default in Python; C++ has it" in found
    assert any(breach.startswith("option c_d is str | None") for breach in found)
    assert "the order of the settings differs" in found


def test_an_unknown_variable_is_named(tmp_path):
    tree.write(tmp_path, {"README.md": "set `AIKIDO_SPEED=9` or AIKIDO_A_B..."})
    assert unknown_variables(tmp_path, {"AIKIDO_A_B"}) == [
        "README.md: AIKIDO_SPEED is no setting"
    ]
