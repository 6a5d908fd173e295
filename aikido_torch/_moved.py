# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Public names that have moved to another package, or have another name now."""

import importlib
import warnings
from collections.abc import Callable, Mapping

__all__ = ["moved_names"]


def moved_names(package: str, moved: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose old names go on with a warning.

    Args:
        package: name of the package.
        moved: for each old name, the new name with its package.
    """

    def find(name: str) -> object:
        if name not in moved:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        warnings.warn(
            f"{package}.{name} is {moved[name]} now; the old name will be removed.",
            DeprecationWarning,
            stacklevel=2,
        )
        where, _, new = moved[name].rpartition(".")
        return getattr(importlib.import_module(where), new)

    return find
