# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Marks tests of what an older torch does not let a plugin do."""

import pytest
import torch

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def since(major, minor):
    """Skips the test with a torch before that one."""
    return pytest.mark.skipif(
        (major, minor) > TORCH, reason=f"torch before {major}.{minor} cannot"
    )
