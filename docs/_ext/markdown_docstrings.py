# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sphinx extension that reads the fenced code of docstrings, which are Markdown."""

import re

from sphinx.application import Sphinx

_FENCE = re.compile(r"^(\s*)```(\w*)$")


def converted(lines: list[str]) -> list[str]:
    """The same docstring with each fenced block as a code-block directive."""
    found: list[str] = []
    is_code = False
    for line in lines:
        fence = _FENCE.match(line)
        if fence and not is_code:
            found += [f"{fence[1]}.. code-block:: {fence[2] or 'text'}", ""]
            is_code = True
        elif fence:
            found.append("")
            is_code = False
        else:
            found.append(f"    {line}" if is_code and line.strip() else line)
    return found


def _convert(*arguments: object) -> None:
    lines = arguments[-1]
    assert isinstance(lines, list)
    lines[:] = converted(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the conversion, ahead of napoleon's."""
    app.connect("autodoc-process-docstring", _convert, priority=100)
    return {"parallel_read_safe": True}
