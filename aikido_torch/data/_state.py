# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Checks of a state that a sampler or loader is to load."""

from collections.abc import Mapping, Sequence

from aikido_torch.errors import ConfigError

__all__ = ["check_same", "check_state", "wrong_state"]


def wrong_state(title: str, text: str) -> ConfigError:
    """Error about a state that `state_dict` of class `title` has not returned."""
    return ConfigError(
        f"{title}: the state to load {text}; give the result of state_dict() of a "
        f"{title}."
    )


def check_state(
    title: str, state: object, *, numbers: Sequence[str], others: Sequence[str]
) -> None:
    """Checks the parts of a state.

    Args:
        title: name of the class, for the error.
        state: argument of the user.
        numbers: names of its whole numbers, from 0 on.
        others: names of its other parts, without "of", which `check_same` compares.

    Raises:
        ConfigError: it is no mapping, lacks a part, or a number is wrong.
    """
    if not isinstance(state, Mapping):
        raise wrong_state(title, f"is a {type(state).__name__}")
    if missing := {*numbers, *others, "of"} - {*state}:
        raise wrong_state(title, f"has no {sorted(missing)[0]!r}")
    for name in numbers:
        if type(state[name]) is not int or state[name] < 0:
            raise wrong_state(title, f"has {name}={state[name]!r}")
    if not isinstance(state["of"], Mapping):
        raise wrong_state(title, f"has of={state['of']!r}")


def check_same(
    title: str, what: str, own: Mapping[str, object], theirs: Mapping[str, object]
) -> None:
    """Checks that a state divides the data as this sampler or loader does.

    Args:
        title: name of the class, for the error.
        what: parts of the data, in the plural.
        own: values on which the division depends.
        theirs: part "of" of the state.

    Raises:
        ConfigError: a value differs.
    """
    for name, value in own.items():
        other = theirs.get(name)
        if value != other:
            raise ConfigError(
                f"{title}: the state to load is of a {title} with {name}={other!r}, "
                f"but here it is {value!r}, so its {what} are others; take "
                f"{name}={other!r}, or begin without a state."
            )
