# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Marks tests of what an older torch does not let a plugin do."""

import pytest
import torch


def version(text):
    """The text "2.13.0+cpu" or "2.13" as (2, 13)."""
    return tuple(map(int, text.split(".")[:2]))


TORCH = version(torch.__version__)


def since(major, minor):
    """Skips the test with a torch before that one."""
    return pytest.mark.skipif(
        (major, minor) > TORCH, reason=f"torch before {major}.{minor} cannot"
    )
