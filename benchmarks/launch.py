# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Starts ranks with torchrun and reads the events that they print.

An event is a line of a rank's standard output: a mark and one JSON object. All other
output is kept, and shown only if the ranks fail.
"""

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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


def run_ranks(
    script: str,
    argument: str,
    *,
    num_ranks: int,
    limit_s: float,
    on_event: Callable[[dict], None],
) -> None:
    """Runs `script` of this folder on `num_ranks` ranks of this machine to its end.

    For the main thread. Raises RanksFailedError; leaves no process behind.
    """
    command: Sequence[str] = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={num_ranks}", str(FOLDER / script), argument),
    ]
    # One thread per rank: more ranks than cores is what most machines will have here.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    last_lines: collections.deque[str] = collections.deque(maxlen=100)
    is_over_time = threading.Event()
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )

    def stop_late_run() -> None:
        is_over_time.set()
        process.send_signal(signal.SIGTERM)  # torchrun ends its ranks and then itself

    timer = threading.Timer(limit_s, stop_late_run)
    timer.start()
    try:
        assert process.stdout is not None
        with cleaning_up_on(signal.SIGTERM):
            for line in process.stdout:
                if line.startswith(MARK):
                    on_event(json.loads(line.removeprefix(MARK)))
                else:
                    last_lines.append(line)
            process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=40)
            process.kill()
            process.wait()
    if process.returncode != 0:
        why = f"ended with code {process.returncode}"
        if is_over_time.is_set():
            why = f"were stopped after {limit_s:g} s"
        raise RanksFailedError(f"The ranks {why}. Last lines:\n{''.join(last_lines)}")
