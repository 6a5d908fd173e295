# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Suggestions for misspelled option and variable names."""

import difflib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from aikido_torch.errors import ConfigError

_T = TypeVar("_T")

# Variables that setup.py reads and that a shell may still have.
_OF_THE_BUILD = (
    "AIKIDO_BENCHMARKS",
    "AIKIDO_CUDA",
    "AIKIDO_SANITIZE",
    "AIKIDO_TESTS",
    "AIKIDO_TORCH",
    "AIKIDO_WERROR",
)


def guess(name: str, known: Iterable[str]) -> str:
    """Half a sentence with the name that `name` probably means; else all names."""
    names = list(known)
    # A part of a name, such as "chunk_bytes", counts as nearer than a similar spelling.
    near = [other for other in names if name and name in other]
    near = near or difflib.get_close_matches(name, names, n=1)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"there are {', '.join(names)}"


def refuse_unknown_names(cls: type[_T]) -> type[_T]:
    """Decorator of a dataclass: an unknown argument is a ConfigError with a hint."""
    init: Any = cls.__init__
    cls_fields: Any = cls
    names = [field.name for field in fields(cls_fields)]

    @functools.wraps(init)
    def checked(self: _T, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                raise ConfigError(
                    f'{cls.__name__}: there is no option "{name}"; {guess(name, names)}'
                )
        init(self, *args, **given)

    setattr(cls, "__init__", checked)  # noqa: B010  (mypy: a method is assigned to)
    return cls


def unknown_variables(
    environment: Mapping[str, str], known: Iterable[str]
) -> list[str]:
    """A sentence for each AIKIDO_ variable of `environment` unknown to aikido."""
    names = list(known)
    return [
        f"The environment variable {name} is none of aikido and has no effect; "
        f"{guess(name, names)}"
        for name in sorted(environment)
        if name.startswith("AIKIDO_") and name not in (*names, *_OF_THE_BUILD)
    ]
