# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sources of the core include the standard headers that they use.

The core is compiled with a precompiled header (csrc/CMakeLists.txt). That header hides
a missing include, which a compiler without it reports as an error.
"""

import functools
import re
from pathlib import Path

from rules import tree

# Precompiled standard header to the names in it that this rule looks for.
NAMES = {
    "algorithm": r"any_of|all_of|none_of|clamp|find_if|sort|stable_sort|max_element",
    "array": "array",
    "atomic": "atomic",
    "chrono": "chrono",
    "functional": "function",
    "map": "map|multimap",
    "memory": "unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared",
    "mutex": "mutex|lock_guard|unique_lock|scoped_lock",
    "optional": "optional|nullopt",
    "span": "span",
    "string": "string|to_string",
    "string_view": "string_view",
    "utility": "exchange|pair",
    "vector": "vector",
}
# Standard header to the headers that it includes by the standard.
ALSO = {"map": {"utility"}, "string": {"string_view"}}
_INCLUDE = re.compile(r'^#include (?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def missing_includes(root: Path) -> list[str]:
    """Files of csrc that use a standard name without its header.

    The header may be included by the file or by a header of the project.
    """
    core = root / "csrc"
    found = []
    for path in tree.files(root, "csrc", suffixes=(".h", ".cpp")):
        part = path.relative_to(core).parts[0]
        if part in ("bind", "c10d"):  # not part of the core
            continue
        text = tree.without_comments(path.read_text())
        has = _headers(path, core)
        for header, names in NAMES.items():
            used = re.search(rf"\bstd::({names})\b", text)
            if used and header not in has:
                where = f"{path.relative_to(root)}:{tree.line_of(text, used.start())}"
                found.append(f"{where}: {used.group()} without <{header}>")
    return found


@functools.cache
def _headers(path: Path, core: Path) -> frozenset[str]:
    """Standard headers that a file includes, itself or through the core's headers."""
    has: set[str] = set()
    for ours, standard in _INCLUDE.findall(path.read_text()):
        if standard:
            has |= {standard} | ALSO.get(standard, set())
        elif (core / ours).is_file():
            has |= _headers(core / ours, core)
    return frozenset(has)


def test_sources_of_this_repository_include_what_they_use():
    assert missing_includes(tree.REPOSITORY) == []


def test_every_precompiled_header_is_checked():
    lists = (tree.REPOSITORY / "csrc/CMakeLists.txt").read_text()
    found = re.search(r"precompile_headers\(aikido_core PRIVATE([^)]*)\)", lists)
    assert found
    assert set(re.findall(r"<(\w+)>", found.group(1))) == set(NAMES)


def test_a_missing_include_is_named(tmp_path):
    files = {
        "a/one.h": "#include <vector>\nstd::vector<int> x;",
        "a/two.cpp": '#include "a/one.h"\nstd::vector<int> y;\n// std::map\n',
        "a/three.h": "#include <string>\nstd::string_view s;\n\nstd::optional<int> o;",
        "bind/four.cpp": "std::map<int, int> not_of_the_core;",
    }
    tree.write(tmp_path, {f"csrc/{name}": text for name, text in files.items()})
    assert missing_includes(tmp_path) == [
        "csrc/a/three.h:4: std::optional without <optional>"
    ]
