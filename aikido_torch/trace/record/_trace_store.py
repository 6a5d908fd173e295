# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Messages for trace requests in the store through which the ranks of a job met."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore
from torch.distributed import DistStoreError

from aikido_torch.errors import ConfigError, RetryLaterError

__all__ = ["Board", "Collected", "address_of", "base_of", "collect", "open_store"]

_PREFIX = "aikido_trace"
# A value of a TCPStore is limited to 8 MiB.
_PART_BYTES = 4 << 20
_TIMEOUT = timedelta(seconds=10)
_LOOK_S = 0.1
# Ranks report their place four times a second, unless a call holds the GIL. While they
# make their dumps, they may take this factor longer.
_SILENT_S = 10.0
_GIVING = 6.0


def base_of(store: Store) -> Store:
    """The store below all prefixes, which other programs can open too."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def own_connection(store: Store) -> Store:
    """A connection of its own, on which another thread may block."""
    base = base_of(store)
    if isinstance(base, TCPStore) and hasattr(base, "clone"):
        base = base.clone()
        base.set_timeout(_TIMEOUT)
    return base


def address_of(store: Store) -> str | None:
    """Address for `open_store`; None if other programs cannot open the store."""
    base = base_of(store)
    if isinstance(base, TCPStore):
        return f"tcp://{base.host}:{base.port}"
    if isinstance(base, FileStore):
        return f"file://{base.path}"  # type: ignore[attr-defined]
    return None


def open_store(address: str, *, timeout: timedelta = _TIMEOUT) -> Store:
    """Connects to the store of a running job.

    Args:
        address: "tcp://host:port", that is MASTER_ADDR and MASTER_PORT of the job, or
            "file:///path", as passed to init_process_group.
        timeout: time to wait for the answer of the job.

    Raises:
        ConfigError: the address has another form, or no job answers.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme == "file" and Path(parts.path).is_file():
        return FileStore(parts.path)
    if parts.scheme == "file":
        raise ConfigError(
            f"{parts.path} is no file; give the one that the job was started with."
        )
    if parts.scheme != "tcp" or not host or not port:
        raise ConfigError(
            f"The store is {address!r}; give tcp://host:port, that is MASTER_ADDR and "
            "MASTER_PORT of the job, or file:///path."
        )
    return _connect(address, host, port, timeout)


def _connect(address: str, host: str, port: int, timeout: timedelta) -> TCPStore:
    """Connects to a TCPStore that exists; otherwise torch would retry for a long time.

    With a server of another kind the constructor of TCPStore never returns, so it runs
    in a thread of its own.
    """
    silence = ConfigError(
        f"No job answers at {address} within {timeout.total_seconds():g} s; give "
        "MASTER_ADDR and MASTER_PORT of one that runs."
    )
    try:
        socket.create_connection((host, port), timeout.total_seconds()).close()
    except OSError as error:
        raise silence from error
    done: Future[TCPStore] = Future()

    def run() -> None:
        try:
            done.set_result(TCPStore(host, port, is_master=False, timeout=timeout))
        except (DistStoreError, RuntimeError) as error:
            done.set_exception(error)

    threading.Thread(target=run, name="aikido-connect", daemon=True).start()
    try:
        return done.result(timeout.total_seconds())
    except (DistStoreError, RuntimeError, TimeoutError) as error:
        raise silence from error


class Told(NamedTuple):
    """Report of a rank about a request.

    Attributes:
        heard: the step in which it read the request.
        now: its present step.
        beat: a new number in each report.
        refused: reason for giving no trace, as text after "it"; empty if it gives one.
    """

    heard: int
    now: int
    beat: int = 0
    refused: str = ""


class Board:
    """Data that requesters and ranks leave for each other. One thread at a time.

    Keys, after a prefix: `ranks`, number of ranks; `listening`, number of ranks that
    listen; `requests`, number of requests. For request n: `n/wanted`; `n/off` after it
    was cancelled; and for each rank `n/at/rank`, its report, `n/part/rank/i`, and then
    `n/parts/rank`. For verdicts on a group: `verdicts/group`, their number, and
    `verdict/group/n`.
    """

    def __init__(self, store: Store) -> None:
        self._store = PrefixStore(_PREFIX, store)

    # ---- both

    def num_requests(self) -> int:
        """Number of requests so far, which is the number of the last one."""
        return self._number("requests")

    def _number(self, key: str) -> int:
        # Not by add(key, 0), because each call makes a file store grow.
        return int(self._store.get(key)) if self._store.check([key]) else 0

    # ---- ranks

    def join(self, size: int) -> None:
        """Announces that `size` ranks listen."""
        self._store.set("ranks", str(size))

    def listen(self) -> None:
        """Announces that this rank reads requests. Call it before join()."""
        self._store.add("listening", 1)

    def wanted(self, number: int) -> tuple[int, int] | None:
        """First and last step of a request; None if it was removed."""
        if not self._store.check([f"{number}/wanted"]):
            return None
        return _steps(self._store.get(f"{number}/wanted"))

    def is_off(self, number: int) -> bool:
        """True if the requester does not wait any more."""
        return self._store.check([f"{number}/off"])

    def tell(self, number: int, rank: int, told: Told) -> None:
        """Reports the progress of this rank."""
        self._store.set(f"{number}/at/{rank}", json.dumps(told))

    def give(self, number: int, rank: int, data: bytes) -> None:
        """Writes the trace of this rank."""
        parts = [data[i : i + _PART_BYTES] for i in range(0, len(data), _PART_BYTES)]
        for i, part in enumerate(parts):
            # torch's type hint asks for text, but accepts bytes.
            self._store.set(f"{number}/part/{rank}/{i}", part)  # type: ignore[arg-type]
        self._store.set(f"{number}/parts/{rank}", str(len(parts)))

    # ---- requesters

    def num_ranks(self) -> int:
        """Number of ranks that listen.

        Raises:
            ConfigError: none listens.
        """
        if not self._store.check(["ranks"]):
            raise ConfigError(
                "No rank of this job listens; call aikido_torch.trace.watch(...) in it."
            )
        return int(self._store.get("ranks"))

    def num_listening(self) -> int:
        """Number of ranks that listen, or did in an earlier job with this store."""
        return self._number("listening")

    def request(self, first: int, last: int) -> int:
        """Asks all ranks to trace these steps. Returns the number of the request."""
        number = self._store.add("requests", 1)
        self._store.set(f"{number}/wanted", json.dumps([first, last]))
        return number

    def steps(self, number: int, ranks: Iterable[int]) -> dict[int, Told]:
        """Reports of the ranks that have read the request."""
        return {
            rank: Told(*json.loads(self._store.get(f"{number}/at/{rank}")))
            for rank in ranks
            if self._store.check([f"{number}/at/{rank}"])
        }

    def dump_of(self, number: int, rank: int) -> bytes | None:
        """The trace of a rank, which stays on the board; None: not written yet."""
        if not self._store.check([f"{number}/parts/{rank}"]):
            return None
        count = int(self._store.get(f"{number}/parts/{rank}"))
        keys = [f"{number}/part/{rank}/{i}" for i in range(count)]
        return b"".join(self._store.get(key) for key in keys)

    def clear(self, number: int, rank: int) -> None:
        """Removes all data that a rank has written for a request."""
        if self._store.check([f"{number}/parts/{rank}"]):
            count = int(self._store.get(f"{number}/parts/{rank}"))
            self._store.delete_key(f"{number}/parts/{rank}")
            for i in range(count):
                self._store.delete_key(f"{number}/part/{rank}/{i}")
        self._store.delete_key(f"{number}/at/{rank}")

    def put_off(self, number: int) -> None:
        """Cancels a request, so that ranks that have not read it will not begin."""
        self._store.set(f"{number}/off", "1")
        self._store.delete_key(f"{number}/wanted")

    # ---- verdicts

    def num_verdicts(self, group: str) -> int:
        """Number of verdicts on a group so far, which is the number of the last one."""
        return self._number(f"verdicts/{group}")

    def say(self, group: str, verdict: dict[str, Any]) -> None:
        """Publishes the next verdict and removes the one before."""
        number = self._store.add(f"verdicts/{group}", 1)
        self._store.set(f"verdict/{group}/{number}", json.dumps(verdict))
        if number > 1:
            self._store.delete_key(f"verdict/{group}/{number - 1}")

    def verdict(self, group: str, number: int) -> dict[str, Any] | None:
        """A verdict by its number; None: not published yet, or replaced."""
        if not self._store.check([f"verdict/{group}/{number}"]):
            return None
        said: dict[str, Any] = json.loads(self._store.get(f"verdict/{group}/{number}"))
        return said


def _steps(text: bytes) -> tuple[int, int]:
    first, second = json.loads(text)
    return int(first), int(second)


class Collected(NamedTuple):
    """Traces of the ranks.

    Attributes:
        dumps: traces that arrived in time, by rank; they stay on the board.
        notes: sentences about traces that differ from the request.
        number: number of the request.
    """

    dumps: dict[int, bytes]
    notes: list[str]
    number: int


@dataclass
class _Heard:
    """The last report of one rank, and the time when it changed."""

    told: Told | None
    at: float

    def is_silent(self, now: float, last: int, silent_s: float) -> bool:
        # A rank that is done writes its trace, and sends no reports meanwhile.
        is_giving = self.told is not None and self.told.now > last
        return now - self.at > (_GIVING * silent_s if is_giving else silent_s)


def _await_ranks(board: Board, until: float, ended: threading.Event) -> None:
    """Waits for ranks that have not called watch: they hear of later requests only."""
    while 0 < board.num_listening() < board.num_ranks() and time.monotonic() < until:
        if ended.wait(_LOOK_S):
            return


def collect(
    board: Board,
    first: int,
    last: int,
    *,
    timeout_s: float,
    silent_s: float = _SILENT_S,
    ended: threading.Event | None = None,
) -> Collected:
    """Asks all ranks to trace these steps, and reads their traces.

    The step before is traced as well: its end is the begin of the first step, which a
    verdict needs.

    Args:
        board: board of the job.
        first: first step.
        last: last step.
        timeout_s: seconds until all ranks must have done the steps.
        silent_s: seconds without a report after which a rank is not waited for.
        ended: ends the wait when set, as if the time were over.

    Raises:
        ConfigError: no rank listens.
        RetryLaterError: no trace arrived; the text has the steps of the ranks.
    """
    ranks = range(board.num_ranks())
    before = max(0, first - 1)
    ended = ended or threading.Event()
    deadline = time.monotonic() + timeout_s
    _await_ranks(board, min(deadline, time.monotonic() + silent_s), ended)
    number = board.request(before, last)
    found: dict[int, bytes] = {}
    begin = now = time.monotonic()
    heard = {rank: _Heard(None, now) for rank in ranks}
    notes: list[str] = []
    try:
        while now < deadline and not ended.is_set():
            for rank in ranks:
                if rank in found:
                    continue
                told = board.steps(number, [rank]).get(rank)
                if told != heard[rank].told:
                    heard[rank] = _Heard(told, now)
                if (data := board.dump_of(number, rank)) is not None:
                    found[rank] = data
            if not _waiting(heard, found, now, last, silent_s):
                break
            ended.wait(min(_LOOK_S, max(0.0, deadline - now)))
            now = time.monotonic()
    except RuntimeError:
        notes.append("the store of the job has gone, and the job with it, it seems.")
    except BaseException:  # the caller asked to end, so nobody will read the data
        for rank in ranks:
            board.clear(number, rank)
        raise
    finally:
        with contextlib.suppress(RuntimeError):
            board.put_off(number)
    lacking = {rank: each for rank, each in heard.items() if rank not in found}
    notes += _why(lacking, now, last, silent_s)
    if not found:
        raise RetryLaterError(
            f"No trace came of steps {first} to {last} within {now - begin:.1f} s: "
            f"{' '.join(notes)} Ask for steps that come sooner, or wait longer."
        )
    starts = [each.told.heard for r, each in heard.items() if r in found and each.told]
    if starts and min(starts) > last:
        for rank in found:
            board.clear(number, rank)
        raise _over(first, last, starts)
    notes += [
        f"rank {rank} was at step {each.told.heard} when it heard: its trace begins "
        "there."
        for rank, each in sorted(heard.items())
        if rank in found and each.told is not None and each.told.heard > before
    ]
    if first == 0:
        notes.append("no step comes before step 0, so there is no verdict on it.")
    return Collected(found, notes, number)


def _over(first: int, last: int, starts: list[int]) -> RetryLaterError:
    return RetryLaterError(
        f"Steps {first} to {last} were over when the ranks heard of it, at steps "
        f"{min(starts)} to {max(starts)}: nothing was traced. Ask for later steps."
    )


def _waiting(
    heard: dict[int, _Heard],
    found: dict[int, bytes],
    now: float,
    last: int,
    silent_s: float,
) -> list[int]:
    """Ranks that may still write a trace."""
    return [
        rank
        for rank, each in heard.items()
        if rank not in found
        and not (each.told is not None and each.told.refused)
        and not each.is_silent(now, last, silent_s)
    ]


def _why(
    lacking: dict[int, _Heard], now: float, last: int, silent_s: float
) -> list[str]:
    """A sentence about each rank without a trace."""
    notes = []
    for rank, each in lacking.items():
        told = each.told
        if told is not None and told.refused:
            text = f"it {told.refused}."
        elif each.is_silent(now, last, silent_s):
            where = "" if told is None else f", at step {told.now} when last heard of"
            text = (
                f"it has told nothing for {silent_s:g} s{where}: it is dead or "
                "stopped, or has not called watch."
            )
        elif told is None:
            text = "it has not heard of it."
        else:
            text = f"it is at step {told.now}."
        notes.append(f"no trace came of rank {rank}: {text}")
    return notes


def as_steps(text: str) -> tuple[int, int]:
    """First and last step from "100:105"; "100" is one step.

    Raises:
        ConfigError: the text has another form, or the last step precedes the first.
    """
    first, _, last = text.partition(":")
    try:
        steps: tuple[Any, Any] = int(first), int(last or first)
    except ValueError:
        steps = (1, 0)
    if not 0 <= steps[0] <= steps[1]:
        raise ConfigError(
            f"The steps are {text!r}; give the first and the last, such as 100:105."
        )
    return steps
