# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Protocol between ranks and the process that starts them.

An event is a line of a rank's standard output: a mark and one JSON object. All other
output is stored, and shown only if the ranks fail.
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
    """The ranks ended with an error or exceeded their time limit; has their last
    lines.
    """


def emit(**event) -> None:
    """On a rank: sends an event to the starting process."""
    sys.stdout.write(MARK + json.dumps(event) + "\n")
    sys.stdout.flush()


def leave() -> NoReturn:
    """Ends a rank that has done its work, without shutting down its interpreter.

    If a thread of torch's Gloo requests the interpreter during its shutdown, Python
    ends that thread, and sometimes aborts the process: "terminate called without an
    active exception".
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextlib.contextmanager
def cleaning_up_on(*signals: signal.Signals) -> Iterator[None]:
    """Context in which these signals end the process through its `finally` blocks.

    Ignored signals stay ignored. For the main thread.
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
