# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checks of the arguments of samplers and loaders."""

from aikido_torch.errors import ConfigError

__all__ = ["check_flag", "check_whole"]


def check_whole(title: str, name: str, value: object, least: int | None = None) -> None:
    """Checks that an argument is a whole number.

    Args:
        title: name of the class, for the error.
        name: of the argument.
        value: of the argument.
        least: the lowest valid number; None: there is none.

    Raises:
        ConfigError: it is no whole number, or below `least`.
    """
    if type(value) is int and (least is None or value >= least):
        return
    from_least = "" if least is None else f", at least {least}"
    raise ConfigError(
        f"{title}: {name} is {value!r}; it takes a whole number{from_least}."
    )


def check_flag(title: str, name: str, value: object) -> None:
    """Checks that an argument is True or False.

    Raises:
        ConfigError: it is neither.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{title}: {name} is {value!r}; it takes True or False.")
