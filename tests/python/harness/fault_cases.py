# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Faults at random moments of random operations, and the check of their outcome.

`case(number)` maps a number to a case. From the folder tests/python, for cases 17 or 0
to 199:

    python -m harness.fault_cases 17
    python -m harness.fault_cases 0 199

One rank, the victim, has one of these faults:

- kill: SIGKILL.
- stop: SIGSTOP, until the other ranks have given up the victim.
- pause: SIGSTOP, for less than the time-out of the group.
- reset, shut: all connections of the victim end, by a reset or in the middle of a
  frame. Its process lives.
- late, lock: the calling thread sleeps, or holds the Python lock. The progress thread
  goes on.

Required in every case: no rank hangs and no result is wrong. After kill, stop, reset
and shut, each survivor has an error that names the victim, and the survivors can make a
new group at once. After kill, each survivor has that error within HEARD_S. Late, lock
and pause cause no error. Time that a process waited for a CPU (cpu_waits.py) does not
count.
"""

import contextlib
import ctypes
import os
import random
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch import Options
from aikido_torch.errors import AikidoError
from aikido_torch.testing import late
from aikido_torch.testing._faults import hold_python_lock
from harness import operations as ops
from harness.cpu_waits import cpu_waits, waited_between
from harness.execution import differences
from harness.pool import Member, MemberLostError, Pool
from harness.programs import KINDS, operation_of

FAULTS = ("kill", "stop", "reset", "late", "kill", "pause", "shut", "lock")
FATAL = ("kill", "stop", "reset", "shut")
# Longest delay that a stopped rank may cause; all other faults must end sooner.
GROUP_TIMEOUT_S = 2.0
# Frames for a stopped rank stay in the queue. Leaving the group waits for them this
# long.
LINGER_MS = 500
# Limit from the kill to the error of each survivor, without time waiting for a CPU.
HEARD_S = 0.3
# Limit from the last error of a survivor until all survivors have a new group.
RECOVERED_S = 2.0
# Limit for the next message of a member, also if other members fail.
_DEADLINE_S = 15.0
_ITERATIONS = 20  # of a case without an error
_ITERATION_S = 0.004  # pause before each iteration


@dataclass(frozen=True)
class Case:
    """One fault in a loop of one operation."""

    number: int
    size: int
    operation: ops.Operation
    fault: str
    victim: int
    after_s: float  # since all ranks are in the loop
    lasts_s: float  # only for pause, late and lock
    is_async: bool
    has_barrier: bool  # after each operation

    @property
    def is_fatal(self) -> bool:
        return self.fault in FATAL


def case(number: int) -> Case:
    """The case of this number.

    Every pair of operation and fault occurs, because the numbers of operations and of
    faults have no common divisor.
    """
    rng = random.Random(f"fault {number}")
    size = rng.choice((3, 4))
    kind = KINDS[number % len(KINDS)]
    operation = operation_of(rng, size, number, kind)
    if isinstance(operation, ops.Messages):
        operation = _between_all(rng, operation, size)
    return Case(
        number=number,
        size=size,
        operation=operation,
        fault=FAULTS[number % len(FAULTS)],
        victim=rng.randrange(size),
        after_s=rng.uniform(0, 0.06),
        lasts_s=rng.uniform(0.05, 0.4),
        is_async=rng.random() < 0.3 and operation.has_work(),
        # A rank that only sends to one other rank would never notice the victim.
        has_barrier=rng.random() < 0.5
        or isinstance(operation, ops.Messages | ops.FromAnybody),
    )


def _between_all(rng: random.Random, some: ops.Messages, size: int) -> ops.Messages:
    """One message from each rank to each other rank."""
    count = some.messages[0].count
    messages = [
        ops.Message(giver=giver, taker=taker, tag=rng.randint(0, 3), count=count)
        for giver in range(size)
        for taker in range(size)
        if giver != taker
    ]
    order = rng.sample(range(len(messages)), len(messages))
    return replace(some, messages=tuple(messages), receiving=tuple(order))


# ---- in each rank ----


@dataclass
class Report:
    """Observations of one rank."""

    num_done: int = 0
    wrong: list[str] = field(default_factory=list)
    error: str = ""  # class of the error; empty if there was none
    culprit: int | None = None
    text: str = ""
    ended_at: float = 0.0  # time.monotonic(), which all processes share
    cpu_waits: dict[int, float] = field(default_factory=dict)  # until ended_at
    recovered_at: float | None = None
    recovery: str = ""  # why it has no new group


def live_through(
    store: dist.Store, tell: Callable[[object], None], what: Case, rank: int, life: str
) -> Report:
    """Runs a case on one rank, from the first group to the group of the survivors."""
    dist.init_process_group(
        "aikido",
        store=dist.PrefixStore(life, store),
        rank=rank,
        world_size=what.size,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
        pg_options=_options(),
    )
    timeout = timedelta(seconds=GROUP_TIMEOUT_S)
    at = ops.Place(rank, what.size, 0, dist.group.WORLD, timeout)
    report = Report()
    dist.barrier()
    tell("ready")
    if rank == what.victim and what.fault in ("reset", "shut"):
        timer = threading.Timer(what.after_s, cut_all, (store.port, what.fault))
        timer.start()
    try:
        _loop(what, at, report)
    except AikidoError as error:
        report.error, report.culprit = type(error).__name__, error.rank
        report.text = str(error)
    report.ended_at = time.monotonic()
    report.cpu_waits = cpu_waits(os.getpid())
    with contextlib.suppress(AikidoError):
        dist.destroy_process_group()
    if what.is_fatal and rank != what.victim and report.error:
        _recover(store, what, rank, life, report)
    return report


def _options() -> Options:
    return Options(
        transport_shared_memory_bytes=0,  # faults cut connections
        shutdown_linger_ms=LINGER_MS,
        heartbeat_interval_ms=100,
        heartbeat_timeout_ms=1000,
    )


def _loop(what: Case, at: ops.Place, report: Report) -> None:
    end = time.monotonic() + GROUP_TIMEOUT_S + 2
    while time.monotonic() < end:
        if not what.is_fatal:
            if report.num_done == _ITERATIONS:
                return
            late(_ITERATION_S)
            if at.rank == what.victim and report.num_done == _ITERATIONS // 2:
                {"late": late, "lock": hold_python_lock, "pause": late}[what.fault](
                    what.lasts_s if what.fault != "pause" else 0
                )
        here = replace(at, number=report.num_done % 7)
        started = what.operation.start(here, what.is_async)
        for work in (*started.receives, *started.works):
            work.wait()
        report.wrong += differences(
            started.results(), _expected(what, here), exact=True
        )
        if what.has_barrier:
            dist.barrier()
        report.num_done += 1


_EXPECTED: dict[tuple[int, int, int], list[Any]] = {}


def _expected(what: Case, at: ops.Place) -> list[Any]:
    key = (what.number, at.rank, at.number)
    if key not in _EXPECTED:
        if len(_EXPECTED) > 50:
            _EXPECTED.clear()
        _EXPECTED[key] = what.operation.expected(at)
    return _EXPECTED[key]


def _recover(
    store: dist.Store, what: Case, rank: int, life: str, report: Report
) -> None:
    survivors = [r for r in range(what.size) if r != what.victim]
    try:
        dist.init_process_group(
            "aikido",
            store=dist.PrefixStore(f"{life} again", store),
            rank=survivors.index(rank),
            world_size=len(survivors),
            timeout=timedelta(seconds=10),
        )
        ones = torch.ones(1000)
        dist.all_reduce(ones)
        assert ones.tolist() == [len(survivors)] * 1000
        report.recovered_at = time.monotonic()
        dist.barrier()
    except (RuntimeError, AssertionError) as error:
        report.recovery = f"{type(error).__name__}: {error}"
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def cut_all(store_port: int, how: str) -> int:
    """Ends all connections of this process but the one to the store; their count.

    A forked child cuts all of them while this process is stopped. Otherwise the process
    could report the first broken connection over a connection that still works. The
    child shares the connections, so it can end them.
    """
    connections = []
    for fd in _open_sockets():
        with contextlib.suppress(OSError):  # closed since it was listed
            connection = socket.socket(fileno=os.dup(fd))
            if _is_cut(connection, store_port):
                connections.append(connection)
            else:
                connection.close()
    child = os.fork()
    if child == 0:
        try:
            _cut_parent(connections, how)
        finally:
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
    os.waitpid(child, 0)
    for connection in connections:
        connection.close()
    return len(connections)


def _open_sockets() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(int(name))
    return found


def _is_cut(connection: socket.socket, store_port: int) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        return connection.getpeername()[1] != store_port
    except OSError:  # a listening socket
        return False


def _cut_parent(connections: list[socket.socket], how: str) -> None:
    parent = os.getppid()
    os.kill(parent, signal.SIGSTOP)
    while any(
        Path(f"/proc/{parent}/task/{thread}/stat").read_text().split(") ")[1][0] != "T"
        for thread in os.listdir(f"/proc/{parent}/task")
    ):
        pass
    libc = ctypes.CDLL(None)
    nobody = (ctypes.c_char * 16)()  # AF_UNSPEC: the kernel sends a reset
    for connection in connections:
        if how == "reset":
            libc.connect(connection.fileno(), nobody, 16)
        else:
            libc.shutdown(connection.fileno(), socket.SHUT_RDWR)


# ---- in the parent process ----


@dataclass
class Verdict:
    case: Case
    wrong: list[str] = field(default_factory=list)
    num_done: int = 0
    heard_s: list[float] = field(default_factory=list)  # of each survivor of a kill
    waited_s: list[float] = field(default_factory=list)  # for a CPU, part of heard_s
    recovered_s: float | None = None

    def __str__(self) -> str:
        lines = [f"case {self.case.number}: {self.case}"]
        lines += [f"  {text}" for text in self.wrong]
        again = f"python -m harness.fault_cases {self.case.number}"
        return "\n".join([*lines, f"  Again: cd tests/python; {again}"])


@dataclass(frozen=True)
class Fault:
    """Moment of a fault, and how long each rank had waited for a CPU until then."""

    at: float  # time.monotonic()
    cpu_waits: Sequence[dict[int, float]]


def try_case(pool: Pool, number: int) -> Verdict:
    what = case(number)
    verdict = Verdict(what)
    members = pool.take(what.size)
    life = f"case {number} {time.monotonic_ns()}"
    healthy = True
    try:
        for rank, member in enumerate(members):
            member.run(live_through, what, rank, life)
        for member in members:
            member.hear(_DEADLINE_S)
        fault = _do_fault(what, members)
        reports = _collect(what, members, verdict)
    except MemberLostError as error:
        verdict.wrong.append(f"a rank got lost: {error}")
        healthy = False
    else:
        died_after = cpu_waits(members[what.victim].pid)
        _judge(what, reports, fault, died_after, verdict)
        healthy = None not in [
            r for rank, r in enumerate(reports) if rank != what.victim
        ]
    finally:
        usable = [
            m
            for rank, m in enumerate(members)
            if healthy and not (rank == what.victim and what.fault == "kill")
        ]
        for member in members:
            if member not in usable:
                member.end()
        pool.give_back(usable)
    return verdict


def _do_fault(what: Case, members: Sequence[Member]) -> Fault:
    victim = members[what.victim]
    late(what.after_s)
    waits = [cpu_waits(member.pid) for member in members]
    at = time.monotonic()
    if what.fault == "kill":
        os.kill(victim.pid, signal.SIGKILL)
    elif what.fault in ("stop", "pause"):
        os.kill(victim.pid, signal.SIGSTOP)
    if what.fault == "pause":
        late(what.lasts_s)
        os.kill(victim.pid, signal.SIGCONT)
    return Fault(at, waits)


def _collect(
    what: Case, members: Sequence[Member], verdict: Verdict
) -> list[Report | None]:
    """Reports by rank. A stopped victim continues after the others have reported."""
    reports: list[Report | None] = [None] * what.size
    order = sorted(range(what.size), key=lambda rank: rank == what.victim)
    for rank in order:
        if rank == what.victim and what.fault == "stop":
            os.kill(members[rank].pid, signal.SIGCONT)
        if rank == what.victim and what.fault == "kill":
            continue
        try:
            reports[rank] = members[rank].hear(_DEADLINE_S)
        except MemberLostError as error:
            verdict.wrong.append(f"rank {rank}: {error}")
    return reports


def _judge(
    what: Case,
    reports: Sequence[Report | None],
    fault: Fault,
    died_after: dict[int, float],
    verdict: Verdict,
) -> None:
    for rank, report in enumerate(reports):
        if report is None:
            continue
        verdict.num_done += report.num_done
        who = "the victim" if rank == what.victim else f"rank {rank}"
        verdict.wrong += [f"{who}: {text}" for text in report.wrong[:3]]
        if not what.is_fatal:
            if report.error:
                verdict.wrong.append(f"{who}: {report.error}: {report.text}")
            continue
        # A stopped victim may continue without an error: its part may be complete.
        if not report.error and not (rank == what.victim and what.fault == "stop"):
            verdict.wrong.append(f"{who} never had an error")
        if rank == what.victim or not report.error:
            continue
        seconds = report.ended_at - fault.at
        if report.culprit != what.victim:
            verdict.wrong.append(
                f"{who} blames {report.culprit}, not {what.victim}, after "
                f"{seconds:.3f} s: {report.error}: {report.text}"
            )
        if report.recovered_at is None:
            verdict.wrong.append(f"{who} has no new group: {report.recovery}")
        if what.fault == "kill":
            # Two delays in a row: until the process has died, and until the survivor
            # reads it.
            waited = waited_between(fault.cpu_waits[what.victim], died_after)
            waited += waited_between(fault.cpu_waits[rank], report.cpu_waits)
            verdict.heard_s.append(seconds)
            verdict.waited_s.append(waited)
            if seconds - waited > HEARD_S:
                verdict.wrong.append(
                    f"{who} heard of the kill after {seconds:.3f} s, of which "
                    f"{waited:.3f} s without a CPU"
                )
    if what.is_fatal:
        survivors = [r for i, r in enumerate(reports) if r and i != what.victim]
        if survivors and all(r.recovered_at for r in survivors):
            last_error = max(r.ended_at for r in survivors)
            verdict.recovered_s = max(r.recovered_at for r in survivors) - last_error
            if verdict.recovered_s > RECOVERED_S:
                seconds = verdict.recovered_s
                verdict.wrong.append(f"a new group took {seconds:.3f} s")


def try_cases(numbers: Iterable[int], lanes: int = 2) -> list[Verdict]:
    """Runs the cases, `lanes` at a time; verdicts in the order of the numbers."""
    with Pool() as pool, ThreadPoolExecutor(lanes) as threads:
        return list(threads.map(lambda number: try_case(pool, number), numbers))


def summary(verdicts: Sequence[Verdict]) -> str:
    heard = sorted(s for v in verdicts for s in v.heard_s)
    waited = sorted(s for v in verdicts for s in v.waited_s)
    recovered = sorted(v.recovered_s for v in verdicts if v.recovered_s is not None)
    lines = [
        f"{len(verdicts)} cases, {sum(bool(v.wrong) for v in verdicts)} wrong, "
        f"{sum(v.num_done for v in verdicts)} operations done"
    ]
    for name, seconds in (
        ("heard of a kill", heard),
        ("of that, without a CPU", waited),
        ("new group", recovered),
    ):
        if len(seconds) > 1:
            cuts = statistics.quantiles(seconds, n=100)
            lines.append(
                f"{name}: {len(seconds)} times, median {1e3 * cuts[49]:.1f} ms, "
                f"p90 {1e3 * cuts[89]:.1f}, p99 {1e3 * cuts[98]:.1f}, "
                f"max {1e3 * seconds[-1]:.1f} ms"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    first, last = int(arguments[0]), int(arguments[-1])
    start = time.monotonic()
    verdicts = try_cases(range(first, last + 1))
    for verdict in verdicts:
        if verdict.wrong:
            print(verdict)
    print(summary(verdicts), f"in {time.monotonic() - start:.1f} s")
    return int(any(v.wrong for v in verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
