# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Helpers of the rule tests: source trees, exceptions, stripping of comments.

A rule is a function of a root folder that returns one sentence for each breach. It runs
on this repository, and on small trees that break it on purpose.
"""

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")

CPP = (".h", ".cpp", ".cu", ".cuh")
PYTHON = (".py", ".pyi")
TEXT = (
    *CPP,
    *PYTHON,
    ".md",
    ".txt",
    ".cmake",
    ".toml",
    ".yml",
    ".yaml",
    ".json",
    ".sh",
)
_TEXT_NAMES = ("Makefile", "run", ".clang-format", ".clang-tidy", ".gitignore")
_NOT_OURS = re.compile(
    r"^(\.git|\.venv|build.*|dist|__pycache__|.*\.egg-info|\..*_cache)$"
)


def files(
    root: Path, *folders: str, suffixes: tuple[str, ...] = TEXT
) -> Iterator[Path]:
    """Files of `root`, or of the given folders in it, sorted; no build products."""
    starts = [root / folder for folder in folders] or [root]
    for start in starts:
        yield from _walk(start, suffixes)


def _walk(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not _NOT_OURS.match(path.name):
                yield from _walk(path, suffixes)
        elif path.suffix in suffixes or (path.name in _TEXT_NAMES and suffixes is TEXT):
            yield path


@functools.cache
def exceptions(rule: str) -> tuple[tuple[str, str], ...]:
    """Pairs of path pattern and excuse for a rule; the excuse '*' covers everything."""
    with EXCEPTIONS.open("rb") as file:
        entries = tomllib.load(file).get(rule, [])
    for entry in entries:
        assert entry.keys() <= {"path", "what", "reason"}, f"unknown key in {entry}"
        assert len(entry["reason"].split()) >= 3, f"{entry['path']} needs a reason"
    return tuple((entry["path"], entry.get("what", "*")) for entry in entries)


def is_excused(rule: str, path: Path, root: Path, what: str = "*") -> bool:
    name = path.relative_to(root).as_posix()
    return any(
        fnmatch.fnmatch(name, pattern) and excuse in ("*", what)
        for pattern, excuse in exceptions(rule)
    )


def stale_exceptions(root: Path) -> list[str]:
    """Exceptions whose files do not exist any more."""
    with EXCEPTIONS.open("rb") as file:
        table = tomllib.load(file)
    return [
        f"exceptions.toml: [{rule}] excuses {entry['path']}, which does not exist"
        for rule, entries in table.items()
        for entry in entries
        if not any(root.glob(entry["path"]))
    ]


_CPP_NOISE = re.compile(
    r"""R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)" | "(?:\\.|[^"\\\n])*" |
        (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+' | //[^\n]* | /\*.*?\*/""",
    re.DOTALL | re.VERBOSE,
)


def without_comments(text: str, *, keep_strings: bool = False) -> str:
    """C++ text with comments and strings blanked; line numbers do not change."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if keep_strings and not found.startswith("/"):
            return found
        newlines = "\n" * found.count("\n")
        return newlines if found.startswith("/") else f'""{newlines}'

    return _CPP_NOISE.sub(blank, text)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def write(root: Path, contents: dict[str, str]) -> Path:
    """Writes a small tree on which a rule can fail."""
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root
