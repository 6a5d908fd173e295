# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Faults for tests; call them in the rank that is to have the fault."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

__all__ = ["die", "hold_python_lock", "late", "stop"]

# Sends the signal repeatedly: on a busy machine the process may not have stopped yet.
_WAKER = """
import os, sys, time
time.sleep(float(sys.argv[1]))
while os.getppid() == int(sys.argv[2]):
    os.kill(int(sys.argv[2]), int(sys.argv[3]))
    time.sleep(0.01)
"""


def late(seconds: float) -> None:
    """Makes this thread sleep; the progress thread continues."""
    time.sleep(seconds)


def hold_python_lock(seconds: float) -> None:
    """Holds the interpreter's lock, so no Python code of this process runs.

    A C extension that computes without releasing the lock does the same. The progress
    thread continues.
    """
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def stop(seconds: float) -> None:
    """Stops the whole process (SIGSTOP), and continues it (SIGCONT) after `seconds`."""
    arguments = [str(seconds), str(os.getpid()), str(int(signal.SIGCONT))]
    with subprocess.Popen([sys.executable, "-S", "-c", _WAKER, *arguments]) as waker:
        os.kill(os.getpid(), signal.SIGSTOP)
        waker.kill()


def die(after: float = 0.0) -> None:
    """Kills this process (SIGKILL) after `after` seconds; 0 kills it at once."""

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if after <= 0:
        kill()
    timer = threading.Timer(after, kill)
    timer.daemon = True
    timer.start()
