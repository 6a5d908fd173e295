# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The pages for users, and the code and commands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]

_FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ANY_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(
    r"^ {4}(?:\.venv/bin/)?((?:aikido|make|pip|torchrun|python|cmake|ctest) .*)",
    re.MULTILINE,
)
_INCLUDE = re.compile(
    r"^```\{literalinclude\} (\S+)\n(.*?)^```", re.DOTALL | re.MULTILINE
)


def code_blocks(text: str) -> list[str]:
    """Python that a page shows and no example has."""
    return _FENCE.findall(text)


def commands(text: str) -> list[str]:
    """Indented lines that a user may type, one string for each, without comments."""
    lines = _ANY_FENCE.sub("", text).replace("\\\n", " ")
    return [re.sub(r"\s+#.*", "", line) for line in _COMMAND.findall(lines)]


def includes(text: str) -> list[tuple[str, dict[str, str]]]:
    """(path, options) of each part of an example that a page shows."""
    return [
        (path, dict(re.findall(r'^:([\w-]+): "?(.*?)"?$', options, re.MULTILINE)))
        for path, options in _INCLUDE.findall(text)
    ]


def paths(text: str) -> set[str]:
    """Paths of this repository that a page names."""
    folders = r"csrc|cuda|aikido_torch|benchmarks|tests|examples|docs|\.ci"
    found = re.findall(rf"`((?:{folders})/[\w./-]*\w)/?`", text)
    return {path for path in found if "/a/" not in path}
