# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Time is an argument: one file reads the system clock, and unit tests never sleep."""

import re
from pathlib import Path

import pytest

from rules import tree

CLOCK = "csrc/base/clock.cpp"
_READS = re.compile(
    r"\b(?:steady_clock|system_clock|high_resolution_clock|utc_clock)\s*::\s*now\b"
    r"|\b(?:clock_gettime|gettimeofday|timespec_get|__rdtsc)\s*\("
    r"|(?<![\w.>])(?:std::)?time\s*\(\s*(?:NULL|nullptr|0|&)"
)
_SLEEPS = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(")
# C++ tests with one of these tags and Python tests in these folders are not unit tests.
_OTHER_LANE_TAGS = ("[tcp]", "[gpu]")
_OTHER_LANE_FOLDERS = ("multiproc", "conformance")


def clock_reads(root: Path) -> list[str]:
    return [
        f"{breach}; take `now` as an argument"
        for path in tree.files(root, "csrc", "cuda", suffixes=tree.CPP)
        if path != root / CLOCK and not tree.is_excused("clock", path, root)
        for breach in _matches(
            _READS, tree.without_comments(path.read_text()), path, root
        )
    ]


def sleeps(root: Path) -> list[str]:
    """Unit tests that sleep or read the clock."""
    found = []
    for path in tree.files(root, "tests/cpp", suffixes=tree.CPP):
        text = path.read_text()
        other_lane = any(tag in text for tag in _OTHER_LANE_TAGS)
        if not other_lane and not tree.is_excused("clock", path, root):
            code = tree.without_comments(text)
            found += _matches(_SLEEPS, code, path, root)
            found += _matches(_READS, code, path, root)
    for path in tree.files(root, "tests/python", suffixes=(".py",)):
        folders = path.relative_to(root / "tests/python").parts[:-1]
        if folders and folders[0] in (*_OTHER_LANE_FOLDERS, "rules"):
            continue
        if not tree.is_excused("clock", path, root):
            found += _matches(_SLEEPS, path.read_text(), path, root)
    return [f"{breach}; move a manual clock instead" for breach in found]


def _matches(pattern: re.Pattern[str], code: str, path: Path, root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{tree.line_of(code, match.start())}: "
        f"{match.group().strip()}"
        for match in pattern.finditer(code)
    ]


def test_only_one_file_of_this_repository_reads_the_clock():
    assert clock_reads(tree.REPOSITORY) == []


def test_no_unit_test_of_this_repository_sleeps():
    assert sleeps(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    "line",
    [
        "auto t = std::chrono::steady_clock::now();",
        "auto t = std::chrono::system_clock :: now();",
        "clock_gettime(CLOCK_MONOTONIC, &t);",
        "srand(time(nullptr));",
    ],
)
def test_a_clock_read_is_named(tmp_path, line):
    tree.write(tmp_path, {"csrc/engine/engine.cpp": line, CLOCK: line})
    (breach,) = clock_reads(tmp_path)
    assert breach.startswith("csrc/engine/engine.cpp:1: ")


@pytest.mark.parametrize(
    "line",
    [
        "clock.now();",
        "// steady_clock::now() is read elsewhere",
        "using Clock = std::chrono::steady_clock;",
        "log_time(0);",
        "decision.time(0);",
    ],
)
def test_other_code_is_not_taken_for_a_clock_read(tmp_path, line):
    tree.write(tmp_path, {"csrc/engine/engine.cpp": line})
    assert clock_reads(tmp_path) == []


def test_a_sleep_in_the_unit_lane_is_named(tmp_path):
    sleep = "std::this_thread::sleep_for(1ms);"
    tree.write(
        tmp_path,
        {
            "tests/cpp/base/a_test.cpp": f'TEST_CASE("x", "[base]") {{ {sleep} }}',
            "tests/cpp/base/b_test.cpp": f'TEST_CASE("x", "[tcp]") {{ {sleep} }}',
            "tests/python/test_c.py": "time.sleep(1)",
            "tests/python/multiproc/test_d.py": "time.sleep(1)",
        },
    )
    breaches = sleeps(tmp_path)
    assert [breach.split(":")[0] for breach in breaches] == [
        "tests/cpp/base/a_test.cpp",
        "tests/python/test_c.py",
    ]
