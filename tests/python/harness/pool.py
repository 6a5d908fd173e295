# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Processes that start quickly: forked with torch imported, and reused."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_PRELOAD = ("aikido_torch", "harness.fault_cases", "numpy")
_STORE_TIMEOUT = timedelta(seconds=30)


class MemberLostError(RuntimeError):
    """The process died or did not answer in time; the text has its stack."""


class Member:
    """One process, seen from its parent."""

    def __init__(
        self, folder: Path, number: int, port: int, preload: Sequence[str]
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*_PRELOAD, *preload])
        self._pipe, theirs = context.Pipe()
        self._stack_file = folder / f"stack-{number}"
        self._process = context.Process(
            target=_live, args=(theirs, str(self._stack_file), port), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def run(self, function: Callable[..., Any], *args: Any) -> None:
        """Starts `function(store, tell, *args)` in the process; see `hear`."""
        self._pipe.send_bytes(pickle.dumps((function, args)))

    def hear(self, timeout: float) -> Any:
        """The next value that the function tells or returns.

        Raises:
            MemberLostError: the process died, raised, or was silent until the time-out.
        """
        if not self._pipe.poll(timeout):
            raise MemberLostError(
                f"silent for {timeout:g} s; it was in\n{self._stack()}"
            )
        try:
            value, failure = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionError):
            raise MemberLostError("died") from None
        if failure is not None:
            raise MemberLostError(failure)
        return value

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _stack(self) -> str:
        os.kill(self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGUSR1)
        self._process.join(0.5)  # leaves it time to write
        return self._stack_file.read_text() if self._stack_file.exists() else ""


class Pool:
    """Members, and a store that outlives each of them. Any thread may take members.

    Args:
        preload: further modules to import before the fork.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = preload
        self._folder = tempfile.TemporaryDirectory(prefix="aikido-pool-")
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True)
        self._lock = threading.Lock()
        self._idle: list[Member] = []
        self._num_started = 0

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._idle:
            member.end()
        self._folder.cleanup()

    def take(self, count: int) -> list[Member]:
        """Members for this caller only, which gives each back or ends it."""
        with self._lock:
            while len(self._idle) < count:
                self._num_started += 1
                folder = Path(self._folder.name)
                port = self._store.port
                member = Member(folder, self._num_started, port, self._preload)
                self._idle.append(member)
            taken, self._idle = self._idle[:count], self._idle[count:]
        return taken

    def give_back(self, members: list[Member]) -> None:
        with self._lock:
            self._idle += members

    @property
    def num_started(self) -> int:
        return self._num_started


def _live(pipe: Connection, stack_path: str, port: int) -> None:
    """Main loop of a member: runs one function after the other."""
    stack_file = open(stack_path, "w")  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=stack_file)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=_STORE_TIMEOUT)

    def tell(value: Any) -> None:
        pipe.send_bytes(pickle.dumps((value, None)))

    while True:
        try:
            function, args = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return  # the parent has died
        try:
            tell(function(store, tell, *args))
        except BaseException:
            pipe.send_bytes(pickle.dumps((None, traceback.format_exc())))
            raise SystemExit(1) from None
