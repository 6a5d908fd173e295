# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""aikido: collectives for PyTorch that need not wait for a late rank."""

import torch  # loads the libraries that the native module links against

_REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps <aikido>"
_running = ".".join(torch.__version__.split(".")[:2])

try:
    from aikido_torch._C import build_info
except ImportError as error:
    raise ImportError(
        f"The native module of aikido does not load with torch {torch.__version__} "
        f"({error}). Build it in this environment: {_REBUILD}"
    ) from error

_built_for = build_info()["torch"]
if _built_for != _running:
    raise ImportError(
        f"This aikido was built for torch {_built_for} but torch {torch.__version__} "
        f"is installed. Install torch=={_built_for}.*, or build again: {_REBUILD}"
    )

__version__ = build_info()["version"]
__all__ = ["__version__", "build_info"]
