# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The Sphinx extensions of docs/_ext."""

import sys

import pytest

from aikido_torch import _C
from docs import pages

pytest.importorskip("sphinx")


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(pages.ROOT / "docs/_ext"))
    yield
    for name in ("settings_table", "markdown_docstrings"):
        sys.modules.pop(name, None)


def test_a_setting_is_shown_with_all_that_the_table_knows():
    import settings_table

    (setting,) = [s for s in _C.settings_table() if s["option"] == "devices_ipc"]
    text = settings_table.entry_of(setting).astext()
    assert text.startswith("devices_ipc\n\n")
    assert setting["help"][1:] in text
    assert "Default: auto. Values: auto, on, off." in text
    assert "AIKIDO_DEVICES_IPC. Must be equal on all ranks." in text


def test_fenced_code_of_a_docstring_becomes_a_directive():
    import markdown_docstrings

    lines = ["Text.", "", "```python", "if x:", "    y()", "", "z()", "```", "More."]
    assert markdown_docstrings.converted(lines) == [
        "Text.",
        "",
        ".. code-block:: python",
        "",
        "    if x:",
        "        y()",
        "",
        "    z()",
        "",
        "More.",
    ]
