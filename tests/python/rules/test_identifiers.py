# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Names in code use the words of the field: private words of this project are banned.

test_words.py and language.py have the words that are banned in texts.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules import tree

# Banned word of a name, in lower case, to its replacement.
BANNED = {
    "astray": "must copy a state, or stray",
    "had": "received, or was",
    "haste": "urgency",
    "loan": "lease",
    "loans": "leases",
    "mend": "fix",
    "mended": "fixed",
    "outbox": "buffer pool",
    "scarce": "liveness",
    "standing": "member state",
    "standings": "member states",
    "tray": "hand-off queue",
    "trays": "hand-off queues",
    "untold": "not announced",
}
# A type with one of these names says nothing; as a variable it may be clear.
BANNED_TYPES = {"Need": "WakePolicy", "Haste": "Urgency", "Standing": "MemberState"}
FOLDERS = ("csrc", "cuda", "aikido_torch", "benchmarks", "examples", "tests")

_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def private_names(root: Path) -> list[str]:
    """One sentence for each private word in a name, once per file and name."""
    found = []
    for path in tree.files(root, *FOLDERS, suffixes=(*tree.CPP, ".py")):
        names = dict.fromkeys([path.stem, *_names_in(path)])
        for name in names:
            for word, instead in banned_in(name):
                if not tree.is_excused("identifiers", path, root, word):
                    where = path.relative_to(root)
                    found.append(f"{where}: '{name}' has '{word}'; say {instead}")
    return found


def banned_in(name: str) -> list[tuple[str, str]]:
    """(word, replacement) for each banned word of a name, or for the whole name."""
    if name.startswith("test_"):  # a sentence; test_language.py reads it
        return []
    if name in BANNED_TYPES:
        return [(name, BANNED_TYPES[name])]
    words = [word.lower() for word in _PART.findall(name)]
    return [(word, BANNED[word]) for word in words if word in BANNED]


def _names_in(path: Path) -> Iterator[str]:
    text = path.read_text()
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                yield token.string
    else:
        yield from _NAME.findall(tree.without_comments(text))


def test_names_of_this_repository_use_the_words_of_the_field():
    assert private_names(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("outbox", "outbox"),
        ("SharedOutbox", "outbox"),
        ("kTrayBytes", "tray"),
        ("num_loans_", "loans"),
        ("_is_astray", "astray"),
        ("HADTime", "had"),
        ("Standing", "Standing"),
        ("Need", "Need"),
    ],
)
def test_a_private_word_is_found_in_a_name(name, word):
    assert [found for found, _ in banned_in(name)] == [word]


@pytest.mark.parametrize(
    "name",
    ["need", "needs_state", "shadow", "betray", "stray", "test_what_nobody_had", "HA"],
)
def test_other_names_pass(name):
    assert banned_in(name) == []


def test_a_private_name_is_found_in_code_and_in_the_name_of_a_file(tmp_path):
    tree.write(
        tmp_path,
        {
            "csrc/a/outbox.h": "// had\nint haste_ = 0;\nint haste_;\n",
            "tests/python/a.py": '"""Docstring: tray."""\nmended = "loan"\n',
        },
    )
    assert private_names(tmp_path) == [
        "csrc/a/outbox.h: 'outbox' has 'outbox'; say buffer pool",
        "csrc/a/outbox.h: 'haste_' has 'haste'; say urgency",
        "tests/python/a.py: 'mended' has 'mended'; say fixed",
    ]
