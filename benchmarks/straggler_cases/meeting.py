# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Meeting point for the ranks of a run, without a byte on the measured links.

All hosts of a lab share this machine's files, so all can reach a socket in a folder.
`Host` is a thread of the process that started the ranks. It answers when all ranks that
are still alive have arrived, with one moment at which they go on. All use the machine's
clock.
"""

import contextlib
import heapq
import itertools
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SOCKET_FILE = "meeting"  # in the folder of a run
MARGIN_S = 0.01  # from the answer to the moment when all go on
JOIN_S = 10.0


@dataclass
class _Guest:
    connection: socket.socket
    rank: int = -1
    pid: int = 0
    unread: bytes = b""


class Host:
    """Thread that waits for the ranks, and applies actions to them at given times.

    `on_met(key, values)` is called when all ranks have arrived, and may block; it
    returns the earliest moment to go on. `on_told` gets reports that ranks send without
    waiting. Both run on the thread of this object, like all functions passed to `at`.
    """

    def __init__(
        self,
        folder: str,
        num_ranks: int,
        *,
        on_met: Callable[[list[Any], dict[int, Any]], float],
        on_told: Callable[[int, dict[str, Any]], None],
    ):
        self._num_ranks = num_ranks
        self._on_met, self._on_told = on_met, on_told
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.path.join(folder, SOCKET_FILE))
        self._server.listen(num_ranks)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, None)
        self._wake_up, self._woken = os.pipe()
        self._selector.register(self._wake_up, selectors.EVENT_READ, None)
        self._guests: dict[int, _Guest] = {}
        self._num_joined = 0
        self._came: dict[int, tuple[list[Any], Any]] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._is_over = False
        self.error: Exception | None = None  # error that ended it early
        self._thread = threading.Thread(target=self._run, name="meeting", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        os.write(self._woken, b"x")
        self._thread.join(JOIN_S)
        for guest in self._guests.values():
            guest.connection.close()
        self._selector.close()
        self._server.close()
        os.close(self._wake_up)
        os.close(self._woken)

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """For callbacks: calls `act` at that moment, unless `forget` is called before.

        A past moment means at once. Otherwise a `forget` that was read in the same
        iteration could cancel it.
        """
        if moment <= time.monotonic():
            act()
            return
        heapq.heappush(self._due, (moment, next(self._order), act))

    def forget(self) -> None:
        self._due.clear()

    def pid_of(self, rank: int) -> int | None:
        """Process id of a rank; None if it has gone."""
        guest = self._guests.get(rank)
        return guest.pid if guest else None

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._turn()
        except Exception as error:
            self.error = error
            for guest in self._guests.values():  # they fail instead of waiting
                with contextlib.suppress(OSError):
                    guest.connection.shutdown(socket.SHUT_RDWR)

    def _turn(self) -> None:
        wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        for key, _ in self._selector.select(wait):
            if key.fileobj is self._server:
                connection, _ = self._server.accept()
                guest = _Guest(connection)
                self._selector.register(connection, selectors.EVENT_READ, guest)
            elif key.data is not None:
                self._read(key.data)
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _read(self, guest: _Guest) -> None:
        try:
            data = guest.connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(guest.connection)
            guest.connection.close()
            self._guests.pop(guest.rank, None)
            self._came.pop(guest.rank, None)
        guest.unread += data
        *lines, guest.unread = guest.unread.split(b"\n")
        for line in lines:
            self._take(guest, json.loads(line))
        self._go_on_if_all_came()

    def _take(self, guest: _Guest, message: dict[str, Any]) -> None:
        if "pid" in message:
            guest.rank, guest.pid = message["rank"], message["pid"]
            self._guests[guest.rank] = guest
            self._num_joined += 1
        elif "meet" in message:
            self._came[guest.rank] = (message["meet"], message["value"])
        else:
            self._on_told(guest.rank, message)

    def _go_on_if_all_came(self) -> None:
        if self._num_joined < self._num_ranks or not self._came:
            return
        if self._came.keys() != self._guests.keys():
            return
        keys = {rank: key for rank, (key, _) in self._came.items()}
        values = {rank: value for rank, (_, value) in self._came.items()}
        key = next(iter(keys.values()))
        if any(other != key for other in keys.values()):
            raise RuntimeError(f"The ranks do not meet at the same place: {keys}.")
        self._came.clear()
        earliest = self._on_met(key, values)
        start = max(earliest, time.monotonic() + MARGIN_S)
        answer = json.dumps({"start": start, "values": values}).encode() + b"\n"
        for guest in self._guests.values():
            with contextlib.suppress(OSError):  # it dies; its end is read next
                guest.connection.sendall(answer)


class Meeting:
    """A rank's side of the meeting. For one thread."""

    def __init__(self, folder: str, rank: int, *, within_s: float):
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(within_s)
        self._connection.connect(os.path.join(folder, SOCKET_FILE))
        self._lines = self._connection.makefile("rb")
        self.tell(rank=rank, pid=os.getpid())

    def tell(self, **message: Any) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def meet(self, *key: Any, value: Any = None) -> dict[int, Any]:
        """Waits for all live ranks, then until the moment that all of them received.

        Returns the values that they passed, by rank.
        """
        self.tell(meet=key, value=value)
        line = self._lines.readline()
        if not line:
            raise SystemExit("The process that started this rank has gone.")
        answer = json.loads(line)
        time.sleep(max(0.0, answer["start"] - time.monotonic()))
        return {int(rank): value for rank, value in answer["values"].items()}
