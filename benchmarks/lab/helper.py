# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Helper processes that the lab starts in its hosts: agent.py and wire.py."""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.lab.network import LabError

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """In a new process: makes the kernel kill it when its parent thread ends."""
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


class Helper:
    """Helper process that exchanges one JSON object per line. It ends with its
    owner.
    """

    def __init__(self, command: Sequence[str], what: str):
        """Starts the process; `what` names it in errors."""
        self._what = what
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._input = b""

    def tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise LabError(f"The {self._what} has ended: {error}.") from error

    def answer(self, within_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        end = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._input:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise LabError(f"The {self._what} was silent for {within_s:g} s.")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise LabError(f"The {self._what} has ended without an answer.")
                self._input += data
        line, _, self._input = self._input.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LabError(f"The {self._what} says: {answer['error']}.")
        return answer

    def close(self) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self._process.wait()
