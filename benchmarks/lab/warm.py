# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Quick start of Python programs, as forks of a process that has imported torch.

The imports of a rank take 3 to 4 s of a core, at each start of each rank. Here
warm_server.py imports once, when the first program is started, and forks itself for
each program. As if started by a shell, a program has arguments, a folder, an
environment and a session of its own, and its output goes to a pipe. But variables that
Python and libraries read during their start have no effect, except PYTHONPATH and, in
torch, OMP_NUM_THREADS.

Multiprocessing's fork server is no alternative. Its programs would import the main
module of the starting process. That server would also start their own child processes.
They would outlive the process that started them. And they would be reaped, with their
process ids, before a caller could ask for their exit codes.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.launch import RanksFailedError

SERVER = Path(__file__).resolve().with_name("warm_server.py")
ANSWER_S = 120.0  # time to import torch on a busy machine, and to fork


@dataclass(frozen=True)
class Program:
    """A Python file, and its arguments in sys.argv."""

    path: Path
    arguments: tuple[str, ...] = ()


class _Server:
    """The process that programs are forked from; ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                # So that no imported library has threads at the time of the fork.
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, *descriptors: int, **request: Any) -> int:
        """Sends a request and returns the answer. Raises RanksFailedError without an
        answer in time.
        """
        message = json.dumps(request).encode()
        try:
            with self._lock:
                self._socket.settimeout(ANSWER_S)
                socket.send_fds(self._socket, [message], descriptors)
                if answer := self._socket.recv(64):
                    return int(answer)
        except ConnectionError:
            pass
        except BaseException as error:
            # Otherwise its answer would be taken for that of the next request.
            self._process.kill()
            self._process.wait()
            if not isinstance(error, OSError):
                raise
            raise RanksFailedError(
                f"The process that ranks are forked from does not answer: {error}"
            ) from error
        code = self._process.wait()
        raise RanksFailedError(
            f"The process that ranks are forked from has ended with code {code}."
        )


class Process:
    """A running program, with the attributes of subprocess.Popen that RankRun needs.

    It is killed when the process that started it ends.
    """

    _server: _Server | None = None

    def __init__(
        self, program: Program, env: Mapping[str, str], namespace: str | None
    ) -> None:
        """Starts the program in a network namespace; None is that of this process.

        Raises RanksFailedError if it cannot be started.
        """
        if Process._server is None:
            Process._server = _Server()
        self._of = Process._server
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, "rb")
        try:
            self.pid = self._of.ask(
                writing,
                path=str(program.path.resolve()),
                arguments=program.arguments,
                folder=os.getcwd(),
                env=dict(env),
                namespace=namespace,
            )
        except BaseException:
            Process._server = None  # the next program gets a new server
            self.stdout.close()
            raise
        finally:
            os.close(writing)
        self.returncode: int | None = None  # Negative: the number of a signal

    def wait(self) -> int:
        """Waits for its end and returns its exit code; the process id is reserved until
        then.
        """
        if self.returncode is None:
            self.returncode = self._of.ask(wait_for=self.pid)
        return self.returncode
