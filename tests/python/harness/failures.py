# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What a call of a test raised."""

import time
from collections.abc import Callable
from typing import NamedTuple

from aikido_torch.errors import AikidoError


class Failure(NamedTuple):
    """An error of ours, or the lack of one."""

    name: str  # its class, or "nothing"
    rank: int | None  # whose fault it is
    text: str
    seconds: float  # until the call was over


def failure_of(call: Callable[[], object]) -> Failure:
    """How the call failed; errors that are not ours are raised."""
    start = time.perf_counter()
    try:
        call()
    except AikidoError as error:
        took = time.perf_counter() - start
        return Failure(type(error).__name__, error.rank, str(error), took)
    return Failure("nothing", None, "", time.perf_counter() - start)


def raised(call: Callable[[], object]) -> Exception | None:
    """What the call raised, ours or not."""
    try:
        call()
    except Exception as error:
        return error
    return None
