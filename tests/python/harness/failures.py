# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The exception of a call in a test."""

import time
from collections.abc import Callable
from typing import NamedTuple

from aikido_torch.errors import AikidoError


class Failure(NamedTuple):
    """An exception of aikido, or a record that there was none."""

    name: str  # name of its class, or "nothing"
    rank: int | None  # rank that the exception blames
    text: str
    seconds: float  # until the call ended


def failure_of(call: Callable[[], object]) -> Failure:
    """The exception of aikido that the call raised; other exceptions propagate."""
    start = time.perf_counter()
    try:
        call()
    except AikidoError as error:
        took = time.perf_counter() - start
        return Failure(type(error).__name__, error.rank, str(error), took)
    return Failure("nothing", None, "", time.perf_counter() - start)


def raised(call: Callable[[], object]) -> Exception | None:
    """The exception that the call raised, of any class."""
    try:
        call()
    except Exception as error:
        return error
    return None
