# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One word per thing: words that csrc/README.md replaces by another are banned."""

import re
from pathlib import Path

import pytest

from rules import tree

# Banned word to its replacement. "Round" is banned only as a noun, not as a verb.
_COUNT = r"an?|the|this|that|each|every|per|next|last|first|one|two|three|\d+|many|all"
BANNED = {
    r"workers?": "member",
    r"nodes?": "member, machine or host",
    r"peer groups?": "view",
    rf"(?:{_COUNT}|num|new|current|in) rounds?|rounds? (?:of|id|number|count|\d+)": (
        "operation, step or epoch"
    ),
}
# Allowed uses of the same letters: interfaces of other projects, and arithmetic. They
# are blanked before the search.
INNOCENT = re.compile(
    r"num_workers|wait_for_workers|persistent_workers|worker_init_fn|get_worker_info|nproc.per.node"
    r"|nnodes|node_rank|numa.nodes?|/node/|fx\.Node|request\.node"
    r"|graph\.nodes|find_nodes|all_input_nodes|node_copy|create_node|erase_node"
    r"|get_node_ip_address|RAY_worker_niceness"
    r"|round[ -]?(trips?|robin)",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
FOLDERS = ("csrc", "cuda", "aikido_torch", "benchmarks", "tests", "docs", "examples")


def banned_words(root: Path) -> list[str]:
    paths = [*tree.files(root, *FOLDERS), *sorted(root.glob("*.md"))]
    return [
        f"{path.relative_to(root)}:{number}: '{word}'; say {instead}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for word, instead in banned_in(line)
        if not tree.is_excused("words", path, root, word.lower())
    ]


def banned_in(line: str) -> list[tuple[str, str]]:
    """(word, its replacement) for each banned word, also inside identifiers."""
    if line.startswith("Never:"):  # the line of a document that lists the banned words
        return []
    words = _CAMEL.sub(" ", INNOCENT.sub(" ", line)).replace("_", " ")
    return [
        (match.group(), instead)
        for pattern, instead in BANNED.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", words, re.IGNORECASE)
    ]


def test_this_repository_keeps_to_its_vocabulary():
    assert banned_words(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("Each worker sends its part.", "worker"),
        ("int worker_count = 0;", "worker"),
        ("class LateNode {", "Node"),
        ("all NODES agree", "NODES"),
        ("a peer group of three", "peer group"),
        ("after three rounds", "three rounds"),
        ("the next round starts", "next round"),
        ("int num_rounds = 3;", "num rounds"),
    ],
)
def test_a_synonym_is_found(line, word):
    assert [found for found, _ in banned_in(line)] == [word]


@pytest.mark.parametrize(
    "line",
    [
        "one round trip on the wire, two round-trips",
        "round to nearest even; rounds towards zero; rounding, rounded up",
        "x = round(y, 3); std::round(z)",
        "lets the adder round; fp16 sums in fp32 and rounds once; one rounding",
        "DataLoader(num_workers=2)",
        "torchrun --nproc-per-node=4",
        "the surrounding ground",
        "Never: worker, node, peer group, round.",
    ],
)
def test_other_meanings_pass(line):
    assert banned_in(line) == []


def test_a_synonym_in_code_or_docs_is_named(tmp_path):
    tree.write(
        tmp_path,
        {"csrc/base/a.h": "\n// one worker\n", "README.md": "three nodes\n"},
    )
    assert banned_words(tmp_path) == [
        "csrc/base/a.h:2: 'worker'; say member",
        "README.md:1: 'nodes'; say member, machine or host",
    ]
