# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What ranks and those who start them agree on.

An event is a line of a rank's standard output: a mark and one JSON object. All other
output is kept, and shown only if the ranks fail.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

MARK = "@event "
FOLDER = Path(__file__).resolve().parent


class RanksFailedError(Exception):
    """The ranks ended with an error or ran past their limit; has their last lines."""


def emit(**event) -> None:
    """On a rank: tells the starting process."""
    sys.stdout.write(MARK + json.dumps(event) + "\n")
    sys.stdout.flush()


def leave() -> NoReturn:
    """Ends a rank that has done its work, without the end of its interpreter.

    A thread of torch's Gloo that asks for the interpreter then is ended by it, and so
    is the process: "terminate called without an active exception", now and then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextlib.contextmanager
def cleaning_up_on(*signals: signal.Signals) -> Iterator[None]:
    """Those signals end this process by way of its `finally`s, unless it ignores them.

    For the main thread.
    """
    before = {
        number: signal.signal(number, lambda got, _: sys.exit(128 + got))
        for number in signals
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
