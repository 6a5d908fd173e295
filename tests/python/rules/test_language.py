# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Comments, docstrings and Markdown are plain technical English.

A unit is the files of one kind in one folder, such as `csrc/base/*.h`. It has at most
so many findings per 1,000 words, and one in any case. Units that are not rewritten yet
are in `not_rewritten.txt`. That list may only get shorter: a unit that has become plain
must leave it. `python tests/python/rules/test_language.py UNIT` prints the findings.
"""

import sys
from collections import defaultdict
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from rules import language, prose, tree

MOST_IN_MARKDOWN = 2.0  # findings per 1,000 words
MOST_IN_CODE = 1.0
LIST = Path(__file__).with_name("not_rewritten.txt")
FOLDERS = ("csrc", "cuda", "aikido_torch", "benchmarks", "tests", "docs", "examples")
_MOST_SHOWN = 10


def units(root: Path) -> dict[str, list[Path]]:
    """Pattern of a unit to its files; the pages of root and docs/ are one unit."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    suffixes = (*tree.CPP, *tree.PYTHON, ".md")
    paths = [*sorted(root.glob("*.md")), *sorted(root.glob("*.py"))]
    paths += tree.files(root, *FOLDERS, suffixes=suffixes)
    for path in paths:
        folder = path.parent.relative_to(root).as_posix()
        if path.suffix == ".md" and folder in (".", "docs"):
            folder = "docs"
        found[f"{folder}/*{path.suffix}"].append(path)
    return dict(found)


def findings_of(paths: list[Path], root: Path) -> tuple[int, list[str]]:
    """Number of words, and a line for each finding with its sentence and its rule."""
    num_words, lines = 0, []
    for path in paths:
        for sentence in prose.sentences(path):
            num_words += len(sentence.words)
            for words, advice in language.findings(sentence.text):
                place = f"{path.relative_to(root)}:{sentence.line}"
                lines.append(f"{place}: '{words}' in: {sentence.text}\n    {advice}")
    return num_words, lines


def most_of(unit: str, num_words: int) -> int:
    """Findings that a unit with so many words may have."""
    most = MOST_IN_MARKDOWN if unit.endswith(".md") else MOST_IN_CODE
    return max(1, int(most * num_words / 1000))


def breaches(root: Path, listed: set[str]) -> list[str]:
    found = units(root)
    result = [
        f"{LIST.name}: there is no {unit}" for unit in sorted(listed - found.keys())
    ]
    for unit, paths in found.items():
        num_words, lines = findings_of(paths, root)
        most = most_of(unit, num_words)
        if unit in listed and len(lines) <= most:
            result.append(f"{LIST.name}: {unit} is plain by now; take it off the list")
        elif unit not in listed and len(lines) > most:
            told = f"{unit}: {len(lines)} findings in {num_words} words, at most {most}"
            result += [told, *lines[:_MOST_SHOWN]]
    return result


def listed_units() -> set[str]:
    lines = LIST.read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def test_this_repository_is_written_in_plain_english():
    found = breaches(tree.REPOSITORY, listed_units())
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    ("sentence", "advice"),
    [
        ("Who leaves waits for the others.", language.NAME_THE_SUBJECT),
        ("A result is sent to who lacks it.", language.NAME_THE_SUBJECT),
        ("Waits for what has not come yet.", language.NAME_THE_SUBJECT),
        ("What is sent later waits.", language.NAME_THE_SUBJECT),
        ("Of longer messages a part goes.", language.NAME_THE_SUBJECT),
        ("Whether the member is late.", language.NAME_THE_SUBJECT),
        ("Closes without one that is late.", language.REPEAT_THE_NOUN),
        ("A result is had once it is whole.", language.FIELD_WORD),
        ("All calls up to here are settled.", language.FIELD_WORD),
        ("Where no rank is late, nothing is sent.", language.MAIN_CLAUSE_FIRST),
        ("A rank " + "waits " * language.MOST_WORDS, language.SPLIT),
    ],
)
def test_a_sentence_that_is_hard_to_read_is_found(sentence, advice):
    assert advice in [found for _, found in language.findings(sentence)]


@pytest.mark.parametrize(
    "sentence",
    [
        "A rank that leaves waits for the other ranks.",
        "The person who filed the issue answers.",
        "The report says who was late.",
        "The log tells what happened.",
        "What happens if a rank dies?",
        "Returns nullopt if no rank is late.",
        "A thread that had the lock releases it.",
        "The log shows where the time went.",
    ],
)
def test_plain_sentences_pass(sentence):
    assert list(language.findings(sentence)) == []


def test_prose_is_read_from_each_kind_of_file(tmp_path):
    tree.write(
        tmp_path,
        {
            "a.h": '// One line,\n// and two. Next.\nint x;  // Last.\nf("// no");\n',
            "b.py": '"""Doc.\n\nArgs:\n    x: a\n        number.\n"""\n# One.\n',
            "c.md": "# Title\n\n| A | B |\n\n    code\n\n```\nx\n```\nSee [it](x).\n",
        },
    )
    texts = {
        path.name: [sentence.text for sentence in prose.sentences(path)]
        for path in sorted(tmp_path.iterdir())
    }
    assert texts["a.h"] == ["One line, and two.", "Next.", "Last."]
    assert texts["b.py"] == ["Doc.", "Args:", "x: a number.", "One."]
    assert texts["c.md"] == ["Title", "A", "B", "See it."]


def test_a_unit_with_findings_is_named_and_a_plain_one_leaves_the_list(tmp_path):
    bad = "// Who leaves waits.\n// Who waits leaves.\n"
    tree.write(tmp_path, {"csrc/base/a.h": bad, "csrc/base/a.cpp": "// Plain.\n"})
    told = breaches(tmp_path, {"csrc/base/*.cpp", "csrc/none/*.h"})
    assert told[0] == "not_rewritten.txt: there is no csrc/none/*.h"
    assert "csrc/base/*.h: 2 findings in 6 words, at most 1" in told
    plain = "not_rewritten.txt: csrc/base/*.cpp is plain by now; take it off the list"
    assert plain in told
    assert told[-1].startswith("csrc/base/a.h:1: 'Who waits leaves' in: Who waits")


def main() -> None:
    """Prints the findings of the units named on the command line, or a count of all."""
    for unit, paths in units(tree.REPOSITORY).items():
        num_words, lines = findings_of(paths, tree.REPOSITORY)
        if unit in sys.argv[1:]:
            print(*lines, sep="\n")
        if unit in sys.argv[1:] or len(sys.argv) == 1:
            most = most_of(unit, num_words)
            print(f"{unit}: {len(lines)} findings in {num_words} words, at most {most}")


if __name__ == "__main__":
    main()
