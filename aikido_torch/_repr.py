# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Text form of public objects: `Name(fact=value, ...)`, on one line."""

import reprlib
from typing import Any

__all__ = ["show_attributes", "show_properties"]

_short = reprlib.Repr()
_short.maxother = _short.maxstring = 60
_short.maxlist = _short.maxtuple = _short.maxdict = 4


def show_attributes(kind: type, *names: str) -> None:
    """Gives a class a repr with these attributes and the results of these methods."""

    def text_of(self: Any) -> str:
        # An object whose construction has not ended lacks some of them.
        found = {name: getattr(self, name) for name in names if hasattr(self, name)}
        facts = ", ".join(
            f"{name.lstrip('_')}={_text(value() if callable(value) else value)}"
            for name, value in found.items()
        )
        return f"{type(self).__name__}({facts})"

    # With setattr, because a type checker treats methods of classes as final.
    setattr(kind, "__repr__", text_of)  # noqa: B010


def show_properties(*kinds: type) -> None:
    """Gives native classes a repr with their properties.

    A class with its own repr keeps it.
    """
    for kind in kinds:
        if kind.__repr__ is object.__repr__:  # type: ignore[comparison-overlap]
            properties = [n for n, v in vars(kind).items() if isinstance(v, property)]
            show_attributes(kind, *properties)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _short.repr(value)
