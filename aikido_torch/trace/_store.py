# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Where requests for traces are left: the store that the ranks of a job met through."""

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
# A value of a TCPStore has a limit of 8 MiB.
_PART_BYTES = 4 << 20
_TIMEOUT = timedelta(seconds=10)
_LOOK_S = 0.1
# Ranks tell where they are four times a second, unless a call holds Python's lock.
# While they make their dumps they may take so many times as long.
_SILENT_S = 10.0
_GIVING = 6.0


def base_of(store: Store) -> Store:
    """The store below all prefixes, which a program outside of the job finds too."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def own_connection(store: Store) -> Store:
    """One that another thread may block on."""
    base = base_of(store)
    if isinstance(base, TCPStore) and hasattr(base, "clone"):
        base = base.clone()
        base.set_timeout(_TIMEOUT)
    return base


def address_of(store: Store) -> str | None:
    """What `open_store` takes; None where nobody else can find it."""
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
            "file:///path", as given to init_process_group.
        timeout: for the answer of the job.

    Raises:
        ConfigError: it is none of these, or no job is there.
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
    """A TCPStore that is there: to one that is not, torch connects again and again.

    With a server of another kind its constructor never returns, so it has a thread of
    its own.
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
    """What a rank tells of a request.

    Attributes:
        heard: the step in which it heard of it.
        now: the step in which it is.
        beat: another number each time.
        refused: why it gives nothing, as what follows after "it"; empty: it does.
    """

    heard: int
    now: int
    beat: int = 0
    refused: str = ""


class Board:
    """What requesters and ranks leave for each other. One thread at a time.

    Keys, behind a prefix: `ranks`, how many there are; `requests`, how many were made;
    and for request n: `n/wanted`, `n/off` once nobody wants it any more, and for each
    rank `n/at/rank`, where it is, `n/part/rank/i` and then `n/parts/rank`. Of verdicts
    for a group: `verdicts/group`, how many there were, and `verdict/group/n`.
    """

    def __init__(self, store: Store) -> None:
        self._store = PrefixStore(_PREFIX, store)

    # ---- both

    def num_requests(self) -> int:
        """How many there were so far; the last has this number."""
        return self._number("requests")

    def _number(self, key: str) -> int:
        # Not by adding nothing: a file store grows by each of these.
        return int(self._store.get(key)) if self._store.check([key]) else 0

    # ---- ranks

    def join(self, size: int) -> None:
        """There are `size` ranks that listen."""
        self._store.set("ranks", str(size))

    def wanted(self, number: int) -> tuple[int, int] | None:
        """First and last step of a request; None: it is there no more."""
        if not self._store.check([f"{number}/wanted"]):
            return None
        return _steps(self._store.get(f"{number}/wanted"))

    def is_off(self, number: int) -> bool:
        """Nobody waits for it any more."""
        return self._store.check([f"{number}/off"])

    def tell(self, number: int, rank: int, told: Told) -> None:
        """Where this rank is."""
        self._store.set(f"{number}/at/{rank}", json.dumps(told))

    def give(self, number: int, rank: int, data: bytes) -> None:
        """The dump of this rank."""
        parts = [data[i : i + _PART_BYTES] for i in range(0, len(data), _PART_BYTES)]
        for i, part in enumerate(parts):
            # Bytes do as well as the text that torch asks for.
            self._store.set(f"{number}/part/{rank}/{i}", part)  # type: ignore[arg-type]
        self._store.set(f"{number}/parts/{rank}", str(len(parts)))

    # ---- requesters

    def num_ranks(self) -> int:
        """How many listen.

        Raises:
            ConfigError: none do.
        """
        if not self._store.check(["ranks"]):
            raise ConfigError(
                "No rank of this job listens; call aikido_torch.trace.watch(...) in it."
            )
        return int(self._store.get("ranks"))

    def request(self, first: int, last: int) -> int:
        """Asks all ranks to trace these steps. Returns the number of the request."""
        number = self._store.add("requests", 1)
        self._store.set(f"{number}/wanted", json.dumps([first, last]))
        return number

    def steps(self, number: int, ranks: Iterable[int]) -> dict[int, Told]:
        """Of those that have heard: where they are."""
        return {
            rank: Told(*json.loads(self._store.get(f"{number}/at/{rank}")))
            for rank in ranks
            if self._store.check([f"{number}/at/{rank}"])
        }

    def dump_of(self, number: int, rank: int) -> bytes | None:
        """What a rank gave, which stays there; None: nothing yet."""
        if not self._store.check([f"{number}/parts/{rank}"]):
            return None
        count = int(self._store.get(f"{number}/parts/{rank}"))
        keys = [f"{number}/part/{rank}/{i}" for i in range(count)]
        return b"".join(self._store.get(key) for key in keys)

    def clear(self, number: int, rank: int) -> None:
        """Takes off all that a rank has left for a request."""
        if self._store.check([f"{number}/parts/{rank}"]):
            count = int(self._store.get(f"{number}/parts/{rank}"))
            self._store.delete_key(f"{number}/parts/{rank}")
            for i in range(count):
                self._store.delete_key(f"{number}/part/{rank}/{i}")
        self._store.delete_key(f"{number}/at/{rank}")

    def put_off(self, number: int) -> None:
        """Nobody wants it any more: ranks that have not heard will not begin."""
        self._store.set(f"{number}/off", "1")
        self._store.delete_key(f"{number}/wanted")

    # ---- verdicts

    def num_verdicts(self, group: str) -> int:
        """How many were said to a group so far; the last has this number."""
        return self._number(f"verdicts/{group}")

    def say(self, group: str, verdict: dict[str, Any]) -> None:
        """The next one, in place of the last."""
        number = self._store.add(f"verdicts/{group}", 1)
        self._store.set(f"verdict/{group}/{number}", json.dumps(verdict))
        if number > 1:
            self._store.delete_key(f"verdict/{group}/{number - 1}")

    def verdict(self, group: str, number: int) -> dict[str, Any] | None:
        """One that was said; None: not yet, or there is a later one."""
        if not self._store.check([f"verdict/{group}/{number}"]):
            return None
        said: dict[str, Any] = json.loads(self._store.get(f"verdict/{group}/{number}"))
        return said


def _steps(text: bytes) -> tuple[int, int]:
    first, second = json.loads(text)
    return int(first), int(second)


class Collected(NamedTuple):
    """What ranks gave.

    Attributes:
        dumps: that came in time, by rank; they stay on the board.
        notes: sentences about those that are not what was asked for.
        number: of the request.
    """

    dumps: dict[int, bytes]
    notes: list[str]
    number: int


@dataclass
class _Heard:
    """Of one rank, what it has told last and when that changed."""

    told: Told | None
    at: float

    def is_silent(self, now: float, last: int, silent_s: float) -> bool:
        # One that is through makes its dump and sends it, and tells nothing meanwhile.
        is_giving = self.told is not None and self.told.now > last
        return now - self.at > (_GIVING * silent_s if is_giving else silent_s)


def collect(
    board: Board,
    first: int,
    last: int,
    *,
    timeout_s: float,
    silent_s: float = _SILENT_S,
    ended: threading.Event | None = None,
) -> Collected:
    """Has all ranks trace these steps, and reads their dumps.

    The step before them is traced as well: how it ended says when the first began,
    without which there is no verdict on that one.

    Args:
        board: of the job.
        first: step, and
        last: step.
        timeout_s: for all ranks to be through.
        silent_s: a rank that tells nothing for so long is not waited for.
        ended: when it is set, this ends as if the time were over.

    Raises:
        ConfigError: nobody listens.
        RetryLaterError: no dump came; the text says where the ranks are.
    """
    ranks = range(board.num_ranks())
    before = max(0, first - 1)
    number = board.request(before, last)
    ended = ended or threading.Event()
    found: dict[int, bytes] = {}
    begin = now = time.monotonic()
    deadline = begin + timeout_s
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
    except BaseException:  # asked to end: nobody will ever want what is there
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
    """The ranks that may still give something."""
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
    """A sentence on each rank that gave nothing."""
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
    """ "100:105" as first and last step; "100" is one step.

    Raises:
        ConfigError: it is none, or the last comes before the first.
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
