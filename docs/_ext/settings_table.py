# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sphinx directive `settings-table`: the option table of the native module."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from aikido_torch import _C


def entry_of(setting: dict[str, Any]) -> nodes.definition_list_item:
    """One setting: its option, then meaning, default, values and variable."""
    meaning = setting["help"]
    term = nodes.term("", "", nodes.literal(text=setting["option"]))
    text = nodes.paragraph("", f"{meaning[0].upper()}{meaning[1:]}.")
    facts = nodes.paragraph("", "Default: ")
    facts += nodes.literal(text=str(setting["default"]) or '""')
    facts += nodes.Text(f". Values: {setting['range']}. Variable: ")
    facts += nodes.literal(text=setting["variable"])
    facts += nodes.Text(". Must be equal on all ranks." if setting["agreed"] else ".")
    return nodes.definition_list_item("", term, nodes.definition("", text, facts))


class SettingsTable(SphinxDirective):
    """The whole table as a definition list, in its order."""

    def run(self) -> list[nodes.Node]:
        entries = [entry_of(setting) for setting in _C.settings_table()]
        return [nodes.definition_list("", *entries)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
