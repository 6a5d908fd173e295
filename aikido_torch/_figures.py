# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pictures in files, drawn by matplotlib, which need not be installed."""

import os
from typing import TYPE_CHECKING

from aikido_torch.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "save_figure"]


def new_figure(of: str, *, inches: tuple[float, float], instead: str) -> "Figure":
    """An empty figure of this width and height.

    Args:
        of: its subject, in the plural.
        instead: remedy without pictures, for the error text.

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
    """The ending of `path` says which kind of picture, such as .svg or .png.

    Raises:
        ConfigError: matplotlib knows no such kind.
    """
    try:
        figure.savefig(path)
    except ValueError as error:
        raise ConfigError(f"{os.fspath(path)}: {error}.") from None
