# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of one process per host, while a script runs.

One thread with one loop: it waits for output, for ends of processes, for the next step
of the script and for the deadline, whichever comes first.
"""

import collections
import contextlib
import json
import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.lab.helper import die_with_parent
from benchmarks.lab.network import inside
from benchmarks.lab.script import Step, Timeline
from benchmarks.lab.warm import Process, Program
from benchmarks.launch import MARK, RanksFailedError

# Time for the remaining ranks to report after one has failed.
GRACE_S = 5.0
_STACKS_S = 0.5  # time for ranks to write their stacks at the deadline
_KEPT_LINES = 10_000
_SHOWN_LINES = 60
_SIGNALS = {
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
    "kill": signal.SIGKILL,
}


@dataclass
class RankEnd:
    """End of a rank."""

    rank: int
    exit_code: int = 0  # Negative: the number of a signal
    seconds: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)  # events that it emitted
    # Lines of both its output streams, without the events.
    lines: collections.deque[str] = field(
        default_factory=lambda: collections.deque(maxlen=_KEPT_LINES)
    )
    was_killed: bool = False  # true if the script killed it

    @property
    def is_failure(self) -> bool:
        return self.exit_code != 0 and not self.was_killed


@dataclass(frozen=True, kw_only=True)
class Start:
    """Command of a rank and its environment."""

    command: Sequence[str] | Program
    env: Mapping[str, str]
    namespace: str | None = None  # network namespace; None: that of this process

    def begin(self) -> Process | subprocess.Popen[bytes]:
        """Starts the rank in a session of its own; it is killed when this process ends.

        Raises RanksFailedError if a program cannot be started.
        """
        if isinstance(self.command, Program):
            return Process(self.command, self.env, self.namespace)
        command = self.command
        if self.namespace is not None:
            command = inside(self.namespace, command)
        return subprocess.Popen(
            command,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def rank_env(
    rank: int, host_of: Sequence[int], address: tuple[str, int]
) -> dict[str, str]:
    """The variables of torchrun; rank 0 listens at the address.

    One thread per rank, because most machines have fewer cores than ranks.
    """
    host = host_of[rank]
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(host_of[:rank].count(host)),
        "WORLD_SIZE": str(len(host_of)),
        "LOCAL_WORLD_SIZE": str(host_of.count(host)),
        "MASTER_ADDR": address[0],
        "MASTER_PORT": str(address[1]),
        "OMP_NUM_THREADS": "1",
    }


class _Rank:
    """A running rank, with its process group."""

    def __init__(self, rank: int, start: Start):
        self.end = RankEnd(rank)
        self.started = time.monotonic()
        self.process = start.begin()
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        os.set_blocking(self.pipe, False)
        self.exit = os.pidfd_open(self.process.pid)
        self._partial = b""

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the rank and to the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def read(self) -> tuple[list[str], bool]:
        """Complete lines that have arrived, and True if the pipe is still open."""
        is_open = True
        while True:
            try:
                data = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                is_open = False
                if self._partial and not self._partial.endswith(b"\n"):
                    self._partial += b"\n"
                break
            self._partial += data
        *lines, self._partial = self._partial.split(b"\n")
        return [line.decode(errors="replace") for line in lines], is_open

    def finish(self) -> None:
        """Kills its remaining processes, before its process id can be reused."""
        self.send(signal.SIGKILL)
        self.end.exit_code = self.process.wait()

    def close(self) -> None:
        if self.process.returncode is None:
            self.finish()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self.exit)


class RankRun:
    """One run of all ranks."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        act: Callable[[Step], None],
        script_from: Literal["ready", "start"],
        on_event: Callable[[int, dict[str, Any]], None] | None = None,
        on_line: Callable[[int, str], None] | None = None,
    ):
        """`act` executes steps of the script about hosts; this object those about
        members.
        """
        self._timeline, self._act, self._script_from = timeline, act, script_from
        self._on_event, self._on_line = on_event, on_line
        self._ranks: list[_Rank] = []
        self._ready: dict[int, float] = {}
        self._zero: float | None = None  # time 0 of the script
        self._selector = selectors.DefaultSelector()

    def run(
        self, starts: Sequence[Start], *, deadline_s: float, check: bool
    ) -> list[RankEnd]:
        """Starts the ranks and waits for them; none is left when it returns or raises.

        Raises RanksFailedError at the deadline and, with `check`, if a rank failed that
        the script did not kill.
        """
        begin = time.monotonic()
        try:
            for rank, start in enumerate(starts):
                self._ranks.append(_Rank(rank, start))
                for source in (self._ranks[-1].pipe, self._ranks[-1].exit):
                    self._selector.register(source, selectors.EVENT_READ, rank)
            if self._script_from == "start":
                self._zero = time.monotonic()
            why = self._loop(begin, deadline_s, check)
        finally:
            for rank in self._ranks:
                rank.close()
            self._selector.close()
        ends = [rank.end for rank in self._ranks]
        if why is None and self._zero is None and self._timeline.next_s is not None:
            why = (
                "The script never began: not every rank has called "
                "benchmarks.lab.rank.ready()"
            )
        if why is None and check and any(end.is_failure for end in ends):
            why = "Ranks failed"
        if why is not None:
            raise RanksFailedError(describe(why, ends))
        return ends

    def _loop(self, begin: float, deadline_s: float, check: bool) -> str | None:
        """Runs until all have ended; returns a sentence if some did not and were
        stopped.
        """
        deadline = begin + deadline_s
        why = f"Ranks still ran at the deadline of {deadline_s:g} s"
        running = dict(enumerate(self._ranks))
        while running:
            now = time.monotonic()
            if now >= deadline:
                self._write_stacks(running.values())
                return f"{why}: {', '.join(map(str, running))}"
            if self._zero is not None:
                for step in self._timeline.due(now - self._zero):
                    self._do(step, running)
            for key, _ in self._selector.select(self._wait_s(deadline)):
                rank = self._ranks[key.data]
                if key.fd == rank.pipe:
                    self._read(rank)
                    continue
                self._selector.unregister(rank.exit)
                self._read(rank)
                rank.finish()
                rank.end.seconds = time.monotonic() - rank.started
                del running[rank.end.rank]
                soon = time.monotonic() + GRACE_S
                if check and rank.end.is_failure and soon < deadline:
                    deadline = soon
                    why = (
                        f"Ranks still ran {GRACE_S:g} s after rank {rank.end.rank} "
                        "had failed"
                    )
        return None

    def _wait_s(self, deadline: float) -> float:
        until = deadline
        if self._zero is not None and self._timeline.next_s is not None:
            until = min(until, self._zero + self._timeline.next_s)
        return max(0.0, until - time.monotonic())

    def _do(self, step: Step, running: Mapping[int, _Rank]) -> None:
        number = _SIGNALS.get(step.what)
        if number is None:
            self._act(step)
        elif rank := running.get(step.event.target):
            rank.end.was_killed |= number == signal.SIGKILL
            rank.send(number)

    def _read(self, rank: _Rank) -> None:
        lines, is_open = rank.read()
        if not is_open and rank.pipe in self._selector.get_map():
            self._selector.unregister(rank.pipe)
        for line in lines:
            if line.startswith(MARK):
                self._take(rank, json.loads(line.removeprefix(MARK)))
                continue
            rank.end.lines.append(line)
            if self._on_line:
                self._on_line(rank.end.rank, line)

    def _take(self, rank: _Rank, event: dict[str, Any]) -> None:
        if event.keys() == {"ready"}:
            self._ready[rank.end.rank] = event["ready"]
            if self._zero is None and len(self._ready) == len(self._ranks):
                self._zero = max(self._ready.values())
            return
        rank.end.events.append(event)
        if self._on_event:
            self._on_event(rank.end.rank, event)

    def _write_stacks(self, ranks: Iterable[_Rank]) -> None:
        """Makes ranks write their stacks; Python does that when aborted
        (PYTHONFAULTHANDLER).
        """
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(rank.process.pid, resource.RLIMIT_CORE, (0, 0))
            rank.send(signal.SIGCONT)
            rank.send(signal.SIGABRT)
        time.sleep(_STACKS_S)
        for rank in ranks:
            self._read(rank)


def describe(why: str, ends: Iterable[RankEnd]) -> str:
    """The sentence and the last lines of each rank that failed or did not end."""
    parts = [f"{why}."]
    for end in ends:
        if end.is_failure or not end.seconds:
            how = f"exit code {end.exit_code}" if end.seconds else "did not end"
            last = "\n".join(list(end.lines)[-_SHOWN_LINES:])
            parts.append(f"---- rank {end.rank}, {how}\n{last}")
    return "\n".join(parts)
