# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Readable times: three digits, and no exponents."""

__all__ = ["in_ms", "ms", "pace", "percent"]


def in_ms(seconds: float) -> str:
    """Seconds in milliseconds: "1,200 ms", "45.2 ms", "0.3 ms"."""
    ms = seconds * 1e3
    if abs(ms) >= 99.95:
        return f"{ms:,.0f} ms"
    digits = 1 if abs(ms) >= 9.995 else 2
    text = f"{ms:.{digits}f}".rstrip("0").rstrip(".")
    return f"{'0' if text == '-0' else text} ms"


def ms(milliseconds: float) -> str:
    """Milliseconds for a cell of a table: "1,200", "45.2", "0.30"."""
    if abs(milliseconds) >= 99.95:
        return f"{milliseconds:,.0f}"
    return f"{milliseconds:.{1 if abs(milliseconds) >= 9.995 else 2}f}"


def pace(seconds_per_byte: float) -> str:
    """Time per mebibyte."""
    return f"{in_ms(seconds_per_byte * (1 << 20))} per MiB"


def percent(share: float) -> str:
    """A share without decimals."""
    return f"{share:.0%}"
