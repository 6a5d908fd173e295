# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The compiled benchmark programs whose instructions valgrind counts."""

import shutil
from pathlib import Path

import pytest

from benchmarks import instructions, programs


def counted_program(of: instructions.Case = instructions.ALLREDUCE) -> Path:
    """Path of the program; skips the test if valgrind or the program is missing."""
    path = programs.path_of(of.program)
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind here")
    if not path.exists():
        pytest.skip(f"{path.name} is not built: python benchmarks/instructions.py")
    return path
