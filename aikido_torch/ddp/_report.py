# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Warnings and errors that are blamed on the line of the user's loop."""

import sys
import sysconfig
import warnings
from types import FrameType
from typing import Literal

from aikido_torch.errors import RanksDifferError, RanksMayDifferWarning

__all__ = ["CHECKS", "line_of", "report", "user_line"]

Check = Literal["error", "warn", "off"]
CHECKS = ("error", "warn", "off")
_OURS = ("aikido_torch", "torch")
_LIBRARIES = tuple(
    sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")
)


def report(text: str, check: Check) -> None:
    """Warns of `text`, or raises RanksDifferError with it, as `check` says.

    The warning is shown whatever frameworks have filtered, once for each call, unless
    the first filter that fits its category makes an error of it.
    """
    if check == "off":
        return
    if check == "error":
        raise RanksDifferError(text)
    filename, line = user_line()
    with warnings.catch_warnings():
        if not _is_error():
            warnings.simplefilter("always", RanksMayDifferWarning)
        warnings.warn_explicit(text, RanksMayDifferWarning, filename, line)


def _is_error() -> bool:
    for action, message, category, module, _ in warnings.filters:
        is_general = message is None and module is None
        if is_general and issubclass(RanksMayDifferWarning, category):
            return action == "error"
    return False


def user_line() -> tuple[str, int]:
    """File and line of the innermost caller that is the user's.

    Frames of torch and aikido_torch are skipped, and those of other installed packages
    if the user's own code is further out: a framework may call the optimizer.
    """
    return line_of(sys._getframe(1))


def line_of(innermost: FrameType) -> tuple[str, int]:
    """The same for the callers of a frame."""
    frame: FrameType | None = innermost
    outside = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        filename = frame.f_code.co_filename
        if package not in _OURS and not filename.startswith("<"):
            if not filename.startswith(_LIBRARIES):
                return filename, frame.f_lineno
            outside = outside or (filename, frame.f_lineno)
        frame = frame.f_back
    return outside or ("<unknown>", 1)
