# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Limits on the length of files, headers and functions."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules import tree

FILE, TEST_FILE, HEADER, FUNCTION = 600, 800, 300, 80
FOLDERS = ("csrc", "cuda", "aikido_torch", "benchmarks", "tests", "docs", "examples")

# Blocks that may contain functions: namespaces and types.
_OUTER = re.compile(
    r"\b(namespace|class|struct|union|enum)\b(?!.*\)\s*(const|noexcept|override)?$)"
    r'|^extern\s*""$',
    re.DOTALL,
)


def oversized(root: Path) -> list[str]:
    found = []
    for path in tree.files(root, *FOLDERS, suffixes=(*tree.CPP, *tree.PYTHON)):
        text = path.read_text()
        name = path.relative_to(root)
        bound, kind = FILE, "file"
        if name.parts[0] == "tests":
            bound, kind = TEST_FILE, "test file"
        elif path.suffix in (".h", ".cuh") and not path.stem.endswith("_impl"):
            bound, kind = HEADER, "header"
        lines = text.count("\n")
        if lines > bound and not tree.is_excused("budget", path, root, "file"):
            found.append(f"{name}: {lines} lines; a {kind} has at most {bound}")
        functions = cpp_functions if path.suffix in tree.CPP else python_functions
        for title, line, length in functions(text):
            if length > FUNCTION and not tree.is_excused("budget", path, root, title):
                found.append(
                    f"{name}:{line}: {title} has {length} lines; a function has at "
                    f"most {FUNCTION}"
                )
    return found


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, line, number of lines) of each function."""
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            assert item.end_lineno is not None
            yield item.name, item.lineno, item.end_lineno - item.lineno + 1


def cpp_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, line, number of lines) of each C++ function.

    A function is a block in braces that is neither a type nor a namespace.
    """
    code = tree.without_comments(text)
    code = re.sub(
        r"^[ \t]*#(?:\\\n|[^\n])*",
        lambda m: "\n" * m.group().count("\n"),
        code,
        flags=re.MULTILINE,
    )
    start = depth = 0  # start: where the head of the current block begins
    inside = None  # (title, line, depth) of the function around the current position
    for match in re.finditer(r"[{};]", code):
        mark, at = match.group(), match.start()
        if mark == "{":
            head = code[start:at].strip()
            if inside is None and not _OUTER.search(head) and "(" in head:
                first = start + len(code[start:at]) - len(code[start:at].lstrip())
                inside = (_title(head), tree.line_of(code, first), depth)
            depth += 1
        elif mark == "}":
            depth -= 1
            if inside and depth == inside[2]:
                yield inside[0], inside[1], tree.line_of(code, at) - inside[1] + 1
                inside = None
        start = at + 1


def _title(head: str) -> str:
    before = head.split("(")[0].split()
    return before[-1] if before else head[:30]


def test_everything_in_this_repository_is_within_budget():
    assert oversized(tree.REPOSITORY) == []


@pytest.mark.parametrize(
    ("name", "lines", "bound"),
    [
        ("csrc/base/a.h", 301, "header has at most 300"),
        ("csrc/base/a.cpp", 601, "file has at most 600"),
        ("csrc/base/a_impl.h", 601, "file has at most 600"),
        ("aikido_torch/a.py", 601, "file has at most 600"),
        ("tests/cpp/base/a_test.cpp", 801, "test file has at most 800"),
    ],
)
def test_a_long_file_is_named(tmp_path, name, lines, bound):
    path = tmp_path / name
    tree.write(tmp_path, {name: "\n" * lines})
    (breach,) = oversized(tmp_path)
    assert bound in breach
    path.write_text("\n" * (lines - 1))
    assert oversized(tmp_path) == []


CPP_CLASS = """
namespace a {{
class B final : public C {{
 public:
  // a comment with {{ a brace
  B(int x) : x_{{x}}, y_(x) {{}}
  int get() const {{ return x_; }}
}};

template <class T>
int B::long_one(T t) const {{
  const char* text = "}}";
  if (t) {{
{body}
  }}
}}
}}  // namespace a
"""


def test_a_long_cpp_function_is_named(tmp_path):
    text = CPP_CLASS.format(body="    ++x;\n" * 76)
    tree.write(tmp_path, {"csrc/base/a.cpp": text})
    (breach,) = oversized(tmp_path)
    assert breach.startswith("csrc/base/a.cpp:10: B::long_one has 83 lines")
    tree.write(tmp_path, {"csrc/base/a.cpp": CPP_CLASS.format(body="    ++x;\n" * 73)})
    assert oversized(tmp_path) == []


def test_cpp_functions_are_found_by_name_and_length():
    found = list(cpp_functions(CPP_CLASS.format(body="    ++x;")))
    assert ("get", 7, 1) in found
    assert ("B::long_one", 10, 7) in found


def test_a_long_python_function_is_named(tmp_path):
    body = "    pass\n" * 80
    tree.write(tmp_path, {"benchmarks/a.py": f"class A:\n  def f(self):\n{body}"})
    (breach,) = oversized(tmp_path)
    assert "f has 81 lines" in breach
