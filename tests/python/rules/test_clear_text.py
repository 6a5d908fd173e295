# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Text that only its author can follow: paths of one machine, numbers of issues."""

import re
from pathlib import Path

import pytest

from rules import tree

TROUBLE = {
    "a folder of one machine": r"(?<![\w.$}])/(?:home|root|Users|work|mnt|scratch)/\w+",
    "an issue by number, which says nothing offline": (
        r"\b(?:issue|bug|PR|pull request|GH)[ -]?#?\d+\b|(?<![\w&(\[])#\d{2,}\b"
    ),
    "a TODO without its class (perf or port)": (
        r"\b(?:TODO|FIXME|XXX)\b(?!\((?:perf|port)\))"
    ),
    "a conflict marker": r"^(?:<{7}|>{7})(?: |$)",
}
_RULES = "tests/python/rules/"


def unclear_text(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: '{match.group()}' is {what}"
        for path in tree.files(root)
        if not path.relative_to(root).as_posix().startswith(_RULES)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for what, pattern in TROUBLE.items()
        for match in re.finditer(pattern, line)
        if not tree.is_excused("text", path, root)
    ]


def unlicensed(root: Path) -> list[str]:
    """Sources that do not begin with the two lines of the licence."""
    paths = tree.files(
        root,
        "csrc", "cuda", "aikido_torch", "benchmarks", "tests",
        suffixes=(*tree.CPP, ".py"),
    )  # fmt: skip
    return [
        f"{path.relative_to(root)}: does not begin with the two licence lines"
        for path in paths
        if not re.match(
            r"(?:#![^\n]*\n)?(//|#) SPDX-License-Identifier: BSD-3-Clause\n"
            r"\1 Copyright \(c\) the aikido authors\n",
            path.read_text(),
        )
    ]


def test_text_of_this_repository_is_clear_to_a_stranger():
    assert unclear_text(tree.REPOSITORY) == []


def test_every_source_of_this_repository_begins_with_the_licence():
    assert unlicensed(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("see /home/someone/build", "a folder of one machine"),
        ("mends issue " + "12", "an issue by number"),
        ("as in #1234", "an issue by number"),
        ("// TODO: later", "a TODO without its class"),
        ("<<<<<<< HEAD", "a conflict marker"),
    ],
)
def test_unclear_text_is_named(tmp_path, line, what):
    tree.write(tmp_path, {"csrc/base/a.cpp": f"//\n{line}\n"})
    (breach,) = unclear_text(tmp_path)
    assert breach.startswith("csrc/base/a.cpp:2: ")
    assert what in breach


@pytest.mark.parametrize(
    "line",
    [
        "/usr/local/cuda/bin",
        "// TODO(perf): merge",
        "#include <a>",
        "work/home/x",
        "#1",
    ],
)
def test_clear_text_passes(tmp_path, line):
    tree.write(tmp_path, {"csrc/base/a.cpp": f"{line}\n"})
    assert unclear_text(tmp_path) == []


def test_a_source_without_licence_is_named(tmp_path):
    licence = (
        "SPDX-License-Identifier: BSD-3-Clause\n{0} Copyright (c) the aikido authors"
    )
    tree.write(
        tmp_path,
        {
            "csrc/base/a.cpp": "int a;\n",
            "csrc/base/b.cpp": f"// {licence.format('//')}\nint b;\n",
            "aikido_torch/c.py": f"# {licence.format('#')}\n",
        },
    )
    assert [breach.split(":")[0] for breach in unlicensed(tmp_path)] == [
        "csrc/base/a.cpp"
    ]
