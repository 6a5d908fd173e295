# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The package of the market tools, without torch and without the native module."""

import subprocess
import sys
from pathlib import Path

import pytest

import aikido_torch
from aikido_torch.market import MarketError

PROGRAM = """
import sys, types
bare = types.ModuleType("aikido_torch")
bare.__path__ = [sys.argv[1]]
sys.modules["aikido_torch"] = bare
sys.modules["torch"] = None
sys.modules["aikido_torch._C"] = None
import aikido_torch.market, aikido_torch.market.__main__
print(aikido_torch.market.Planner.__name__)
"""


def test_the_package_needs_neither_torch_nor_the_native_module():
    folder = Path(aikido_torch.__file__).parent
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "Planner\n", done.stderr


def test_a_market_error_is_a_value_error():
    with pytest.raises(ValueError, match="wrong"):
        raise MarketError("wrong")
