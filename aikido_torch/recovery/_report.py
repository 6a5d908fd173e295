# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Warnings and errors that point at the line of the user's loop."""

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
    """Warns with `text`, raises RanksDifferError with it, or does nothing.

    The warning is shown once per call, even if a framework has filtered it. If the
    first filter for its category turns it into an error, it raises.

    Args:
        text: the sentence.
        check: "warn", "error" or "off".
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
    """File and line of the innermost frame of user code.

    Frames of torch and aikido_torch are skipped. Frames of other installed packages are
    skipped if an outer frame is user code, because a framework may call the optimizer.
    """
    return line_of(sys._getframe(1))


def line_of(innermost: FrameType) -> tuple[str, int]:
    """File and line of user code among the callers of `innermost`."""
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
