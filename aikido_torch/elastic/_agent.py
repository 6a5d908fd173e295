# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Agent of one machine: starts the processes of its members, and replaces dead ones.

The agent uses torch.distributed.elastic.multiprocessing with one context per process.
So the death of a process ends no other process. `run` belongs to the main thread.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    PContext,
    Std,
    start_processes,
)

from aikido_torch.elastic._restarts import Restart, RestartPolicy
from aikido_torch.elastic._stages import RELIABLE, TRANSIENT, Role
from aikido_torch.errors import ConfigError

__all__ = ["Agent", "Launch", "endpoint_of", "python_command", "serve_store"]

_POLL_S = 0.05
_NOTICES = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
# Torch sets handlers for the signals in this variable at each start of a process. The
# agent sets its own handlers.
_TORCH_SIGNALS = "TORCHELASTIC_SIGNALS_TO_HANDLE"


@dataclass(frozen=True)
class Launch:
    """Processes that an agent keeps running.

    Args:
        command: program and arguments of each process.
        num_processes: number of processes on this machine.
        endpoint: "host:port" of the store of the job.
        role: role of all members of this machine.
        job: name of the job.
        grace_s: seconds from a notice until the processes are killed.
        log_dir: folder for the output of the processes; None: the console.
        policy: restarts of each process.

    Raises:
        ConfigError: an argument is wrong.
    """

    command: Sequence[str]
    num_processes: int
    endpoint: str
    role: Role = TRANSIENT
    job: str = "job"
    grace_s: float = 30.0
    log_dir: str | None = None
    policy: RestartPolicy = field(default_factory=RestartPolicy)

    def __post_init__(self) -> None:
        endpoint_of(self.endpoint)
        if not self.command:
            raise ConfigError("elastic run: there is no program; give its path.")
        if self.num_processes < 1:
            raise ConfigError(
                f"elastic run: --nproc-per-node is {self.num_processes}; it takes a "
                "number from 1 on."
            )
        if self.role not in (RELIABLE, TRANSIENT):
            raise ConfigError(
                f"elastic run: --role is {self.role!r}; it takes {RELIABLE!r} or "
                f"{TRANSIENT!r}."
            )
        if not 0 <= self.grace_s < float("inf"):
            raise ConfigError(
                f"elastic run: --grace is {self.grace_s}; it takes seconds from 0 on."
            )

    def environment_of(self, slot: int, restarts: int) -> dict[str, str]:
        """Variables of the process in a slot, as far as they differ from the agent's.

        Args:
            slot: number of the process on this machine, from 0.
            restarts: number of earlier processes in this slot.
        """
        host, port = endpoint_of(self.endpoint)
        found = {
            "AIKIDO_ROLE": self.role,
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "LOCAL_RANK": str(slot),
            "LOCAL_WORLD_SIZE": str(self.num_processes),
            "TORCHELASTIC_RUN_ID": self.job,
            "TORCHELASTIC_RESTART_COUNT": str(restarts),
        }
        if self.num_processes > 1 and "OMP_NUM_THREADS" not in os.environ:
            found["OMP_NUM_THREADS"] = "1"
        return found


def endpoint_of(text: str) -> tuple[str, int]:
    """Host and port of an endpoint.

    Raises:
        ConfigError: the text has another form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"elastic run: the endpoint is {text!r}; give host:port of the store of "
            "the job, with a port from 1 to 65535."
        )
    return host.strip("[]"), int(port)


def serve_store(endpoint: str) -> Store:
    """Store of the job in this process; it ends with the returned object.

    Raises:
        ConfigError: the port is in use, such as by another job.
    """
    host, port = endpoint_of(endpoint)
    try:
        return TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=30),
        )
    except (dist.DistNetworkError, dist.DistStoreError, RuntimeError) as error:
        reason = str(error).splitlines()[0][:120]
        raise ConfigError(
            f"elastic run: the store cannot listen on {endpoint}: {reason}. If another "
            "job has its store there, give another port. Only one agent of a job takes "
            "--serve-store."
        ) from None


@dataclass
class _Slot:
    """Place of one process on this machine."""

    number: int
    context: PContext | None = None
    start_s: float | None = 0.0  # time of the next start; None: no start
    restarts_s: list[float] = field(default_factory=list)
    end: Restart | None = None


class Agent:
    """Keeps the processes of one machine running until they are done.

    Args:
        launch: the processes.
        tell: called with one line per event.
        clock: monotonic clock, in seconds.
        start: starts the process of a slot, for tests.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        start: "Callable[[Launch, int, int], Any] | None" = None,
    ) -> None:
        self._launch = launch
        self._tell = tell
        self._clock = clock
        self._start = start or _start
        self._slots = [_Slot(number) for number in range(launch.num_processes)]
        self._received: list[signal.Signals] = []
        self._evicted_s: float | None = None  # time of the notice

    def run(self) -> int:
        """Runs until each process is done or given up.

        Returns:
            0 if all processes were done, also after a notice; 1 if one was given up.
        """
        with self._handlers():
            while not self.turn():
                time.sleep(_POLL_S)
        return self.exit_code

    @property
    def exit_code(self) -> int:
        """Code for the end of the agent."""
        ends = [slot.end for slot in self._slots]
        return int(any(end is not None and end.verdict == "give_up" for end in ends))

    def notify(self, number: signal.Signals) -> None:
        """Passes a signal on to all processes, in the next turn."""
        self._received.append(number)

    def turn(self) -> bool:
        """Looks at each process once; returns True when nothing is left to do."""
        now_s = self._clock()
        while self._received:
            self._pass_on(self._received.pop(0), now_s)
        is_over = self._evicted_s is not None and (
            now_s - self._evicted_s >= self._launch.grace_s
        )
        for slot in self._slots:
            if slot.context is not None:
                self._look(slot, now_s, is_over=is_over)
            if slot.start_s is not None and slot.start_s <= now_s:
                slot.start_s = None
                restarts = len(slot.restarts_s)
                slot.context = self._start(self._launch, slot.number, restarts)
                self._tell_of(slot, f"process {self._pid_of(slot)} starts")
        return all(slot.end is not None for slot in self._slots)

    def _look(self, slot: _Slot, now_s: float, *, is_over: bool) -> None:
        context = slot.context
        assert context is not None
        if is_over:
            context.close(signal.SIGKILL, timeout=5)
        result = context.wait(0)
        if result is None:
            return
        failure = result.failures.get(0)
        decision = self._launch.policy.decide(
            0 if failure is None else failure.exitcode,
            now_s=now_s,
            restarts_s=slot.restarts_s,
            is_evicting=self._evicted_s is not None,
        )
        self._tell_of(slot, decision.reason)
        slot.context = None
        if decision.verdict == "restart":
            slot.restarts_s.append(now_s)
            slot.start_s = now_s + decision.pause_s
        else:
            slot.end = decision

    def _pass_on(self, number: signal.Signals, now_s: float) -> None:
        if self._evicted_s is None:
            self._evicted_s = now_s
            self._tell(
                f"{number.name}: the processes of this machine get the notice, and are "
                f"killed in {self._launch.grace_s:g} s"
            )
        for slot in self._slots:
            if slot.context is not None:
                for pid in slot.context.pids().values():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            elif slot.end is None:
                slot.start_s = None
                slot.end = Restart("done", 0.0, "the machine has an eviction notice")

    def _tell_of(self, slot: _Slot, text: str) -> None:
        self._tell(f"slot {slot.number}: {text}")

    def _pid_of(self, slot: _Slot) -> int:
        assert slot.context is not None
        return next(iter(slot.context.pids().values()))

    @contextlib.contextmanager
    def _handlers(self) -> Iterator[None]:
        def on_signal(number: int, frame: FrameType | None) -> None:
            self.notify(signal.Signals(number))

        before: Mapping[signal.Signals, Any] = {
            number: signal.signal(number, on_signal) for number in _NOTICES
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for slot in self._slots:
                if slot.context is not None:  # an error of the agent
                    slot.context.close(signal.SIGTERM, timeout=5)


def _start(launch: Launch, slot: int, restarts: int) -> PContext:
    program, *arguments = launch.command
    logs = DefaultLogsSpecs()
    if launch.log_dir is not None:
        logs = DefaultLogsSpecs(f"{launch.log_dir}/{slot}", redirects=Std.ALL)
    handler = signal.getsignal(signal.SIGHUP)
    before = os.environ.get(_TORCH_SIGNALS)
    os.environ[_TORCH_SIGNALS] = "SIGHUP"
    try:
        return start_processes(
            name=f"{launch.job}/{slot}",
            entrypoint=program,
            args={0: tuple(arguments)},
            envs={0: launch.environment_of(slot, restarts)},
            logs_specs=logs,
        )
    except OSError as error:
        raise ConfigError(
            f"elastic run: {program} cannot be started: {error.strerror}."
        ) from None
    finally:
        signal.signal(signal.SIGHUP, handler)
        if before is None:
            del os.environ[_TORCH_SIGNALS]
        else:
            os.environ[_TORCH_SIGNALS] = before


def python_command(program: str, arguments: Sequence[str], kind: str) -> list[str]:
    """Command of a process.

    Args:
        program: path of a script, name of a module, or path of a program.
        arguments: of the program.
        kind: "script", "module" or "program".
    """
    begin = {
        "script": [sys.executable, "-u"],
        "module": [sys.executable, "-u", "-m"],
        "program": [],
    }[kind]
    return [*begin, program, *arguments]
