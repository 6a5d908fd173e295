# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The sentences of comments, docstrings and Markdown, with the lines they begin on."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"``.+?``|`[^`]+`")
_NEW_PARAGRAPH = re.compile(r"[-*] |\d+[.)] |#+ |Note \[|\w+: |[A-Z]\w*:$")
_END = re.compile(r"(?<=[.!?:;])[\"')]?\s+(?=[A-Z`\"(\[*])")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


@dataclass(frozen=True)
class Sentence:
    """One sentence, heading or cell of a table."""

    path: Path
    line: int
    text: str

    @property
    def words(self) -> list[str]:
        return _WORD.findall(self.text)


def sentences(path: Path) -> list[Sentence]:
    """All prose of a file. The suffix of the file name says how to read it."""
    text = path.read_text()
    if path.suffix == ".md":
        paragraphs = _of_markdown(text)
    elif path.suffix in (".py", ".pyi"):
        paragraphs = _of_python(text)
    else:
        paragraphs = _of_cpp(text)
    return [
        Sentence(path, line, sentence)
        for line, paragraph in paragraphs
        for sentence in _split(paragraph)
    ]


def _split(paragraph: str) -> list[str]:
    plain = _CODE.sub("X", _LINK.sub(r"\1", paragraph))
    plain = re.sub(r"\s+", " ", re.sub(r"[*_]{2}", "", plain)).strip()
    return [part for part in _END.split(plain) if _WORD.search(part)]


def _joined(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Paragraphs of numbered lines; a blank line or a list item begins a new one."""
    first, parts = 0, []
    for number, line in lines:
        text = line.strip()
        if parts and (not text or _NEW_PARAGRAPH.match(text)):
            yield first, " ".join(parts)
            parts = []
        if text:
            first = first if parts else number
            parts.append(re.sub(r"^([-*>] |\d+[.)] |#+ )+", "", text))
    if parts:
        yield first, " ".join(parts)


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    def blank(match: re.Match[str]) -> str:
        return "\n" * match.group().count("\n")

    text = re.sub(r"<!--.*?-->", blank, _FENCE.sub(blank, text), flags=re.DOTALL)
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|"):
            lines.append((number, ""))
            for cell in line.strip("|").split("|"):
                lines += [(number, cell), (number, "")]
        else:
            is_code = line.startswith("    ") and not line.lstrip().startswith(
                ("-", "*")
            )
            lines.append((number, "" if is_code else line))
    return _joined(lines)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for item in ast.walk(ast.parse(text)):
        if isinstance(item, kinds) and ast.get_docstring(item):
            first = item.body[0]
            doc = _FENCE.sub("", ast.get_docstring(item) or "")
            lines = enumerate(doc.split("\n"), first.lineno)
            yield from _joined(
                (n, "" if s.startswith("    >>>") else s) for n, s in lines
            )
    comments = [
        (token.start[0], token.string.lstrip("#: "))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    yield from _joined(_with_gaps(comments))


def _of_cpp(text: str) -> Iterator[tuple[int, str]]:
    comments = []
    for number, line in enumerate(text.split("\n"), 1):
        found = re.search(r"(?<![:\"'])//+ ?(.*)$", line)
        if found and line[: found.start()].count('"') % 2 == 0:
            is_alone = not line[: found.start()].strip()
            comments.append((number, found[1] if is_alone else found[1] + "\n"))
    # A comment behind code is a paragraph of its own.
    spread: list[tuple[int, str]] = []
    for number, comment in comments:
        if comment.endswith("\n") and spread and not spread[-1][1].endswith(","):
            spread.append((number, ""))
        spread.append((number, comment))
    return _joined(_with_gaps(spread))


def _with_gaps(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The same lines, with a blank line where code stands between two of them."""
    last = 0
    for number, line in lines:
        if number > last + 1:
            yield number, ""
        if not re.match(r"SPDX|Copyright|type:|noqa|NOLINT", line):
            yield number, line
        last = number
