# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sphinx settings of the user documentation; `make docs` builds it in build/docs."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]

import aikido_torch  # noqa: E402

project = "aikido"
author = "the aikido authors"
version = release = aikido_torch.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "markdown_docstrings",
    "settings_table",
]
exclude_patterns = ["_ext"]
html_theme = "furo"
html_title = "aikido"
html_copy_source = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

default_role = "code"  # docstrings write code in single backticks
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_use_ivar = True
