# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checks of numbers that users pass: each error is a ConfigError with the name."""

import math
import operator
from collections.abc import Iterable
from typing import Any

from aikido_torch.errors import ConfigError

__all__ = ["flag", "number", "numbers", "sequence", "string", "whole", "wholes"]

_LIMIT = 2**31  # limit of the native module's integers


def whole(name: str, value: Any, *, least: int | None = None, example: str = "") -> int:
    """Converts an int, or an object with `__index__`, such as numpy's.

    Args:
        name: name of the argument, for the error.
        value: the value.
        least: smallest value that is allowed; None: no limit.
        example: a valid value, for the error.

    Raises:
        ConfigError: it is no integer, or too large, or less than `least`.
    """
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise ConfigError(f"{name} has {_told(value)}; it takes whole numbers.")
    if abs(found) >= _LIMIT:
        raise ConfigError(
            f"{name} has {_told(value)}; it takes whole numbers below {_LIMIT}."
        )
    if least is not None and found < least:
        as_example = f", as {example}" if example else ""
        raise ConfigError(f"{name} is {found}; it takes {least} or more{as_example}.")
    return found


def wholes(name: str, values: Any) -> list[int]:
    """Converts one integer or several to a list."""
    return [whole(name, value) for value in _several(name, values, "whole numbers")]


def number(name: str, value: Any) -> float:
    """Converts a number, such as numpy's, to float; text is refused. May be infinite.

    Raises:
        ConfigError: it is no number, or too large for a float.
    """
    is_text = isinstance(value, str | bytes | bool | complex)
    try:
        return float(value if not is_text else None)  # type: ignore[arg-type]
    except OverflowError:
        raise ConfigError(
            f"{name} has {_told(value)}, which is too large; it takes a finite number."
        ) from None
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"{name} has {_told(value)}; it takes a number.") from None


def numbers(name: str, values: Any) -> list[float]:
    """Converts one number or several to a list of floats."""
    return [number(name, value) for value in _several(name, values, "numbers")]


def flag(name: str, value: Any) -> bool:
    """Returns a bool; other values that count as true or false are refused.

    Raises:
        ConfigError: it is no bool.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{name} has {_told(value)}; it takes True or False.")
    return value


def sequence(name: str, value: Any) -> list[Any]:
    """Converts an iterable to a list.

    Raises:
        ConfigError: it is a single value or text.
    """
    if isinstance(value, str | bytes) or not _has_items(value):
        raise ConfigError(f"{name} has {_told(value)}; it takes a list.")
    return list(value)


def string(name: str, value: Any, *, example: str) -> str:
    """Returns a str. Other values are not converted.

    Raises:
        ConfigError: it is no str.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{name} has {_told(value)}; it takes a text, as {example}.")
    return value


def _has_items(value: Any) -> bool:
    """True if it can be iterated over. A tensor or array without dimensions cannot."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def _several(name: str, values: Any, what: str) -> list[Any]:
    if isinstance(values, str | bytes):
        raise ConfigError(f"{name} has {_told(values)}; it takes {what}.")
    return list(values) if _has_items(values) else [values]


def _told(value: Any) -> str:
    """Text of a value, shortened: an int may have thousands of digits, a text be a
    file.
    """
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"{'-' if value < 0 else ''}1e{math.log10(abs(value)):.0f}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
