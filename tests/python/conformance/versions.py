# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Skip marks for tests that need features of a newer torch."""

import pytest
import torch


def version(text):
    """The version "2.13.0+cpu" or "2.13" as (2, 13)."""
    return tuple(map(int, text.split(".")[:2]))


TORCH = version(torch.__version__)


def since(major, minor):
    """Skips the test if torch is older than this version."""
    return pytest.mark.skipif(
        (major, minor) > TORCH, reason=f"torch before {major}.{minor} cannot"
    )
