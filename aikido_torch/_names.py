# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Old, misspelled and unknown names of options and variables."""

import difflib
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
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


@dataclass(frozen=True)
class Renamed:
    """The present name of an option.

    Attributes:
        name: the name.
        values: present values by old values, where they differ.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)

    def present(self, value: object) -> object:
        """The present value for one that was given to the old name."""
        return self.values.get(value, value) if isinstance(value, str) else value

    def former(self, value: object) -> object:
        """The value that the old name had for a present one."""
        return next((old for old, new in self.values.items() if new == value), value)


def rename_options(**renamed: Renamed) -> Callable[[type[_T]], type[_T]]:
    """Decorator of a dataclass whose old options go on with a DeprecationWarning.

    An old name overrides its present name, because dataclasses.replace gives both.

    Args:
        renamed: the present option for each old name.
    """

    def warn(cls: type[object], old: str) -> None:
        warnings.warn(
            f"{cls.__name__}: {old} is {renamed[old].name} now; the old name will be "
            "removed.",
            DeprecationWarning,
            stacklevel=3,
        )

    def reader(old: str, new: Renamed) -> property:
        def read(self: object) -> object:
            warn(type(self), old)
            return new.former(getattr(self, new.name))

        return property(read, doc=f"Old name of `{new.name}`.")

    def decorate(cls: type[_T]) -> type[_T]:
        init: Any = cls.__init__

        @functools.wraps(init)
        def with_old_names(self: _T, *args: Any, **given: Any) -> None:
            for old in renamed.keys() & given.keys():
                warn(type(self), old)
                new = renamed[old]
                given[new.name] = new.present(given.pop(old))
            init(self, *args, **given)

        setattr(cls, "__init__", with_old_names)  # noqa: B010  (mypy: as above)
        for old, new in renamed.items():
            setattr(cls, old, reader(old, new))
        return cls

    return decorate


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
