# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Every source and every test is in a build list, and every list names real files."""

import re
from pathlib import Path

from rules import tree

SOURCES = (".cpp", ".cu")
# A file counts as listed when a list spells it relative to one of these.
_ANCHORS = ("", "csrc", "cuda", "tests/cpp", "benchmarks/cpp")
_TOKEN = re.compile(r"[^\s()\"';<>]+\.(?:cpp|cu)\b")


def unbuilt(root: Path) -> list[str]:
    listed, missing = _listed(root)
    there = set(tree.files(root, "csrc", "cuda", "benchmarks/cpp", suffixes=SOURCES))
    there |= set(tree.files(root, "tests/cpp", suffixes=SOURCES))
    forgotten = [
        f"{path.relative_to(root)}: in no CMakeLists.txt or sources.cmake"
        for path in sorted(there - listed)
    ]
    return missing + forgotten


def _listed(root: Path) -> tuple[set[Path], list[str]]:
    listed: set[Path] = set()
    missing = []
    lists = [
        path
        for path in tree.files(root)
        if path.name == "CMakeLists.txt" or path.suffix == ".cmake"
    ]
    for path in lists:
        text = re.sub(r"#[^\n]*", "", path.read_text())
        for match in _TOKEN.finditer(text):
            token = match.group()
            name = re.sub(
                r"^\$\{(CMAKE_CURRENT_SOURCE_DIR|PROJECT_SOURCE_DIR)\}/", "", token
            )
            if "$" in name:  # made while configuring
                continue
            spots = {path.parent, *(root / anchor for anchor in _ANCHORS)}
            hits = {spot / name for spot in spots if (spot / name).is_file()}
            listed |= hits
            if not hits:
                place = f"{path.relative_to(root)}:{tree.line_of(text, match.start())}"
                missing.append(f"{place}: lists {token}, which does not exist")
    return listed, missing


def wrongly_mutable(root: Path) -> list[str]:
    """What asks `mutated()` and is not compiled once more for it, or needlessly is."""
    listing = (root / "csrc/CMakeLists.txt").read_text()
    found = re.search(r"set\(AIKIDO_MUTABLE_SOURCES([^)]*)\)", listing)
    listed = set(_TOKEN.findall(found.group(1))) if found else set()
    asking = {
        str(path.relative_to(root / "csrc"))
        for path in tree.files(root, "csrc", suffixes=tree.CPP)
        if "mutated(" in path.read_text()
    } - {"base/mutation.h"}
    return sorted(asking ^ listed)


def test_what_can_be_mutated_is_built_for_the_simulator():
    assert wrongly_mutable(tree.REPOSITORY) == []


def test_a_header_or_a_source_that_can_be_mutated_unseen_is_named(tmp_path):
    lists = "set(AIKIDO_MUTABLE_SOURCES\n  a/one.cpp\n  a/two.cpp)"
    asks = "if (mutated(Mutation::kX)) return;"
    files = {"CMakeLists.txt": lists, "a/one.cpp": asks, "a/two.cpp": "int x;"}
    files |= {"a/three.h": asks, "base/mutation.h": "bool mutated(Mutation);"}
    tree.write(tmp_path, {f"csrc/{name}": text for name, text in files.items()})
    assert wrongly_mutable(tmp_path) == ["a/three.h", "a/two.cpp"]


def test_every_file_of_this_repository_is_built():
    assert unbuilt(tree.REPOSITORY) == []


def test_a_forgotten_source_is_named(tmp_path):
    tree.write(
        tmp_path,
        {
            "csrc/CMakeLists.txt": "set(X\n base/a.cpp # base/b.cpp\n)",
            "csrc/base/a.cpp": "",
            "csrc/base/b.cpp": "",
        },
    )
    assert unbuilt(tmp_path) == [
        "csrc/base/b.cpp: in no CMakeLists.txt or sources.cmake"
    ]


def test_a_forgotten_test_is_named(tmp_path):
    tree.write(
        tmp_path,
        {
            "tests/cpp/CMakeLists.txt": "aikido_suite(base LANES unit SOURCES)",
            "tests/cpp/base/a_test.cpp": "",
        },
    )
    (breach,) = unbuilt(tmp_path)
    assert breach.startswith("tests/cpp/base/a_test.cpp")


def test_a_listed_file_that_is_gone_is_named(tmp_path):
    tree.write(tmp_path, {"csrc/CMakeLists.txt": "\nset(X base/a.cpp)"})
    assert unbuilt(tmp_path) == [
        "csrc/CMakeLists.txt:2: lists base/a.cpp, which does not exist"
    ]


def test_lists_of_a_part_may_spell_the_folder_they_are_included_from(tmp_path):
    tree.write(
        tmp_path,
        {
            "csrc/kernels/sources.cmake": "${CMAKE_CURRENT_SOURCE_DIR}/kernels/a.cpp",
            "csrc/kernels/a.cpp": "",
        },
    )
    assert unbuilt(tmp_path) == []
