# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Builder and loader of the backend in bare_backend.cpp; no benchmark itself."""

import importlib.util
import types
from pathlib import Path

from benchmarks import torch_library

NAME = "bare_backend"
SOURCE = Path(__file__).with_suffix(".cpp")
OPTIONS = f"-O3 -DTORCH_EXTENSION_NAME={NAME}"


def path() -> Path:
    """Path of the built library."""
    return torch_library.path_of(NAME, [SOURCE], options=OPTIONS)


def build() -> Path:
    """Builds it if needed, in half a minute. Raises BuildError."""
    return torch_library.build(NAME, [SOURCE], options=OPTIONS)


def load(built: Path) -> types.ModuleType:
    """The module in that file: make(rank, size, name) and unlink(name)."""
    spec = importlib.util.spec_from_file_location(NAME, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
