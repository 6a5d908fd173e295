# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Eviction notices of this process: signals, a file, and the metadata of a cloud.

`Watcher` collects the notices. Signal handlers belong to the main thread. A thread of
the watcher polls the file and the cloud, so that a server that hangs stops no step.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from aikido_torch.elastic._stages import RELIABLE, Role
from aikido_torch.errors import ConfigError

__all__ = [
    "FileSource",
    "Found",
    "Notice",
    "Source",
    "SourceError",
    "Watcher",
    "evicted_members",
    "objection",
]

# Kubernetes and most clouds give 30 s between SIGTERM and SIGKILL.
_SIGNAL_WARNING_S = 30.0
_LARGEST_FILE = 4096


@dataclass(frozen=True)
class Found:
    """Result of a poll with a notice.

    Attributes:
        reason: words for the log, such as "AWS will terminate this machine".
        warning_s: seconds until the eviction.
    """

    reason: str
    warning_s: float


@dataclass(frozen=True)
class Notice:
    """Eviction notice of this process.

    Attributes:
        source: "SIGTERM", "SIGUSR1", the path of a file, or the name of a cloud.
        reason: words for the log.
        received_s: time of the notice on the clock of the watcher, in seconds.
        warning_s: seconds from that time until the eviction.
    """

    source: str
    reason: str
    received_s: float
    warning_s: float

    @property
    def end_s(self) -> float:
        """Time of the eviction on the clock of the watcher, in seconds."""
        return self.received_s + self.warning_s

    def remaining_s(self, now_s: float) -> float:
        """Seconds until the eviction; 0 after it."""
        return max(0.0, self.end_s - now_s)


class SourceError(Exception):
    """A source of notices cannot be read; the text is one sentence."""


class Source(Protocol):
    """Source of notices that is polled from one thread.

    Attributes:
        name: for the log.
    """

    name: str

    def poll(self) -> Found | None:
        """A notice, or None. Ends in a few seconds in any case.

        Raises:
            SourceError: the source cannot be read.
        """


class FileSource:
    """File whose existence is a notice, such as one that a `preStop` hook writes.

    The file may have the seconds until the eviction as text. An empty file stands for
    `warning_s`.

    Args:
        path: of the file.
        warning_s: seconds until the eviction if the file names none.
    """

    def __init__(
        self, path: str | os.PathLike[str], warning_s: float = _SIGNAL_WARNING_S
    ) -> None:
        self.name = os.fspath(path)
        self._warning_s = warning_s

    def poll(self) -> Found | None:
        """A notice as soon as the file exists.

        A file with another text is a notice too, since somebody has written it.
        """
        try:
            with Path(self.name).open("rb") as file:
                text = file.read(_LARGEST_FILE).decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SourceError(
                f"the file {self.name} cannot be read: {error.strerror}"
            ) from None
        try:
            seconds = float(text) if text else self._warning_s
        except ValueError:
            seconds = self._warning_s
        is_valid = 0 <= seconds < float("inf")
        return Found("the file exists", seconds if is_valid else self._warning_s)


class Watcher:
    """Collects the notices of this process until `close`.

    Args:
        sources: sources to poll, from one thread.
        signals: signals that are notices. Handlers can be set in the main thread only.
        signal_warning_s: seconds from such a signal to the end of the process.
        poll_s: seconds between two polls.
        on_problem: called from the watcher's thread with one sentence if a source
            cannot be read. The same sentence of a source is not repeated.
        clock: monotonic clock, in seconds.

    Raises:
        ConfigError: signals are given outside of the main thread.
    """

    def __init__(
        self,
        sources: Sequence[Source] = (),
        *,
        signals: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGUSR1),
        signal_warning_s: float = _SIGNAL_WARNING_S,
        poll_s: float = 1.0,
        on_problem: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = tuple(sources)
        self._signal_warning_s = signal_warning_s
        self._poll_s = poll_s
        self._on_problem = on_problem
        self._clock = clock
        self._problems: dict[str, str] = {}
        # Appended by a signal handler: a lock here could block its own thread.
        self._notices: deque[Notice] = deque(maxlen=1000)
        self._is_closed = threading.Event()
        self._before: dict[signal.Signals, Any] = {}
        is_main = threading.current_thread() is threading.main_thread()
        if signals and not is_main:
            raise ConfigError(
                "elastic: eviction notices by signal need a call from the main thread; "
                "call join there, or turn the signals off."
            )
        for number in signals:
            self._before[number] = signal.signal(number, self._on_signal)
        self._thread: threading.Thread | None = None
        if self._sources:
            self._thread = threading.Thread(
                target=self._run, name="aikido-notices", daemon=True
            )
            self._thread.start()

    @property
    def notice(self) -> Notice | None:
        """The notice with the earliest eviction; None: there is no notice."""
        return min(self._notices, key=lambda n: n.end_s, default=None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentence of each source that cannot be read at present."""
        return tuple(self._problems.values())

    def add(self, source: str, reason: str, warning_s: float) -> None:
        """Adds a notice; a repeated notice of the same source is ignored."""
        if all(notice.source != source for notice in list(self._notices)):
            self._notices.append(Notice(source, reason, self._clock(), warning_s))

    def poll(self) -> None:
        """Polls each source once. The thread of the watcher does it repeatedly."""
        for source in self._sources:
            try:
                found = source.poll()
            except SourceError as error:
                text = (
                    f"elastic: eviction notices of {source.name} may be missed: "
                    f"{error}."
                )
                if self._problems.get(source.name) != text:
                    self._problems[source.name] = text
                    self._on_problem(text)
                continue
            self._problems.pop(source.name, None)
            if found is not None:
                self.add(source.name, found.reason, found.warning_s)

    def close(self) -> None:
        """Restores the signal handlers and ends the thread. Idempotent."""
        self._is_closed.set()
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        if self._thread is not None:
            # A poll that hangs ends by its own limit; the thread is a daemon.
            self._thread.join(self._poll_s)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        self.add(name, "this process received it", self._signal_warning_s)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self.poll()
            self._is_closed.wait(self._poll_s)


def evicted_members(
    noticed: Collection[str], hosts: Mapping[str, str]
) -> tuple[str, ...]:
    """Members that a notice concerns: all members on the hosts of noticed members.

    Args:
        noticed: members with a notice of their own.
        hosts: name of the host by member, in rank order. A member with an empty name
            shares its host with nobody.
    """
    gone = {hosts[m] for m in noticed if hosts.get(m)}
    return tuple(m for m, host in hosts.items() if m in noticed or host in gone)


def objection(leaving: Collection[str], roles: Mapping[str, Role]) -> str | None:
    """Sentence for notices of reliable members; None: there is no such notice.

    Args:
        leaving: members that leave because of a notice.
        roles: role by member.
    """
    reliable = [m for m, role in roles.items() if role == RELIABLE]
    gone = [m for m in reliable if m in leaving]
    if not gone:
        return None
    rest = len(reliable) - len(gone)
    names = ", ".join(gone)
    if rest:
        return (
            f"elastic: reliable members leave after an eviction notice: {names}; "
            f"{rest} of {len(reliable)} reliable members stay. Start others on "
            "machines that are not evicted."
        )
    return (
        f"elastic: all {len(reliable)} reliable members have an eviction notice: "
        f"{names}; the job ends with them. Save a checkpoint now, and start the job "
        "again with reliable members on machines that are not evicted."
    )
