# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Faults of a rank; each is called in the rank with the fault."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

__all__ = ["die", "hold_python_lock", "late", "stop"]

# Again and again: on a busy machine the process may not have stopped yet.
_WAKER = """
import os, sys, time
time.sleep(float(sys.argv[1]))
while os.getppid() == int(sys.argv[2]):
    os.kill(int(sys.argv[2]), int(sys.argv[3]))
    time.sleep(0.01)
"""


def late(seconds: float) -> None:
    """This thread does nothing for a while; the progress thread goes on."""
    time.sleep(seconds)


def hold_python_lock(seconds: float) -> None:
    """No Python code of this process runs for a while; the progress thread goes on.

    As a C extension does that computes without releasing the interpreter's lock.
    """
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def stop(seconds: float) -> None:
    """The whole process stands still (SIGSTOP) and then goes on (SIGCONT)."""
    arguments = [str(seconds), str(os.getpid()), str(int(signal.SIGCONT))]
    with subprocess.Popen([sys.executable, "-S", "-c", _WAKER, *arguments]) as waker:
        os.kill(os.getpid(), signal.SIGSTOP)
        waker.kill()


def die(after: float = 0.0) -> None:
    """The process is killed (SIGKILL) after so many seconds; returns if not at once."""

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if after <= 0:
        kill()
    timer = threading.Timer(after, kill)
    timer.daemon = True
    timer.start()
