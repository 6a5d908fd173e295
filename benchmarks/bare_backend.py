# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""No benchmark: builds and loads the backend of bare_backend.cpp.

By torch's own tools, since it is made of torch's headers, which no other program here
is.
"""

import importlib.util
import sys
import types
from pathlib import Path

from benchmarks.programs import ROOT, BuildError

NAME = "bare_backend"


def path() -> Path:
    """Where it is once it is built, for this Python and this torch."""
    import torch  # not for who only asks for other benchmarks

    tag = f"{sys.implementation.cache_tag}-{torch.__version__}"
    return ROOT / "build" / f"{NAME}-{tag}" / f"{NAME}.so"


def build() -> Path:
    """Brings it up to date, which takes a minute the first time. Raises BuildError."""
    from torch.utils import cpp_extension

    folder = path().parent
    folder.mkdir(parents=True, exist_ok=True)
    try:
        cpp_extension.load(
            name=NAME,
            sources=[str(Path(__file__).with_suffix(".cpp"))],
            extra_cflags=["-std=c++20", "-O3"],
            build_directory=str(folder),
            with_cuda=False,
        )
    except (RuntimeError, OSError) as error:
        raise BuildError(f"The bare backend cannot be built: {error}") from error
    return path()


def load(built: Path) -> types.ModuleType:
    """The module in that file: make(rank, size, name) and unlink(name)."""
    spec = importlib.util.spec_from_file_location(NAME, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
