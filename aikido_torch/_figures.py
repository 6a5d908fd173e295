# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pictures in files, drawn by matplotlib, which is optional."""

import os
from typing import TYPE_CHECKING

from aikido_torch.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "save_figure"]


def new_figure(of: str, *, inches: tuple[float, float], instead: str) -> "Figure":
    """An empty figure of this width and height.

    Args:
        of: subject of the pictures, in the plural.
        instead: remedy for users without pictures, for the error text.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            f"pictures of {of} need matplotlib, which is not installed; install "
            f"it (pip install matplotlib), or {instead} instead."
        ) from None
    return Figure(figsize=inches, layout="constrained")


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Saves the figure; the suffix of `path` selects the format, such as .svg.

    Raises:
        ConfigError: matplotlib does not know the format.
    """
    try:
        figure.savefig(path)
    except ValueError as error:
        raise ConfigError(f"{os.fspath(path)}: {error}.") from None
