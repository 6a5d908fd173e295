# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Starts Python programs in a moment, as copies of a process that has imported torch.

What a rank imports takes 3 to 4 s of a core, and four ranks on two cores as many each
time that they are started. Here warm_server.py imports it once, when the first program
is started, and forks itself for each. As started by a shell, a program has arguments, a
folder, an environment and a session of its own, and what it prints goes to a pipe. But
what Python and libraries read of the environment as they start they have read already,
except for PYTHONPATH and, in torch, OMP_NUM_THREADS.

Not multiprocessing's fork server: its programs would import the main module of whoever
starts them, have their own processes made by that server, outlive who has started them,
and be gone, with their numbers, before somebody has asked how they ended.
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
ANSWER_S = 120.0  # for it to import torch on a busy machine, and to fork


@dataclass(frozen=True)
class Program:
    """A Python file, and what it finds in sys.argv behind its own name."""

    path: Path
    arguments: tuple[str, ...] = ()


class _Server:
    """The process that programs are forked from; ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                # So that no library that is imported has threads when it is forked.
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, *descriptors: int, **request: Any) -> int:
        """Raises RanksFailedError without an answer in time."""
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
            # Or its answer would be taken for that of the next.
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
    """A program that runs; has what RankRun needs of a subprocess.Popen.

    It is killed when the process that has started it ends.
    """

    _server: _Server | None = None

    def __init__(
        self, program: Program, env: Mapping[str, str], namespace: str | None
    ) -> None:
        """`namespace` is the network namespace that it runs in; None is this one.

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
            Process._server = None  # the next program has another one
            self.stdout.close()
            raise
        finally:
            os.close(writing)
        self.returncode: int | None = None  # negative: by this signal

    def wait(self) -> int:
        """Its exit code, when it has ended; its number is its own until then."""
        if self.returncode is None:
            self.returncode = self._of.ask(wait_for=self.pid)
        return self.returncode
