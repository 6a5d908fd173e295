# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Where requests for traces are left: the store that the ranks of a job met through."""

import json
import time
from collections.abc import Iterable
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


def open_store(address: str) -> Store:
    """Connects to the store of a running job.

    Args:
        address: "tcp://host:port", that is MASTER_ADDR and MASTER_PORT of the job, or
            "file:///path", as given to init_process_group.

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
    try:
        return TCPStore(host, port, is_master=False, timeout=_TIMEOUT)
    except (DistStoreError, RuntimeError) as error:
        raise ConfigError(
            f"No job answers at {address} within {_TIMEOUT.seconds} s; give "
            "MASTER_ADDR and MASTER_PORT of one that runs."
        ) from error


class Board:
    """What requesters and ranks leave for each other. One thread at a time.

    Keys, behind a prefix: `ranks`, how many there are; `requests`, how many were made;
    and for request n: `n/wanted`, `n/off` once nobody wants it any more, and for each
    rank `n/at/rank`, where it is, `n/part/rank/i` and then `n/parts/rank`.
    """

    def __init__(self, store: Store) -> None:
        self._store = PrefixStore(_PREFIX, store)

    # ---- both

    def num_requests(self) -> int:
        """How many there were so far; the last has this number."""
        return self._store.add("requests", 0)

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

    def tell_step(self, number: int, rank: int, *, heard: int, now: int) -> None:
        """In which step this rank heard of a request, and in which it is."""
        self._store.set(f"{number}/at/{rank}", json.dumps([heard, now]))

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

    def steps(self, number: int, ranks: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Of those that have heard: in which step, and in which they are."""
        return {
            rank: _steps(self._store.get(f"{number}/at/{rank}"))
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


def collect(board: Board, first: int, last: int, *, timeout_s: float) -> Collected:
    """Has all ranks trace these steps, and reads their dumps.

    Raises:
        ConfigError: nobody listens.
        RetryLaterError: no dump came; the text says where the ranks are.
    """
    ranks = range(board.num_ranks())
    number = board.request(first, last)
    found: dict[int, bytes] = {}
    heard: dict[int, tuple[int, int]] = {}
    try:
        deadline = time.monotonic() + timeout_s
        while len(found) < len(ranks) and time.monotonic() < deadline:
            for rank in ranks:
                if rank in found:
                    continue
                heard |= board.steps(number, [rank])
                if (data := board.dump_of(number, rank)) is not None:
                    found[rank] = data
            if len(found) < len(ranks):
                time.sleep(min(0.1, max(0.0, deadline - time.monotonic())))
    finally:
        board.put_off(number)
    waiting = {rank: heard.get(rank) for rank in ranks if rank not in found}
    if not found:
        raise RetryLaterError(
            f"No rank was through step {last} within {timeout_s:g} s: "
            f"{_describe(waiting)}; ask for steps that come sooner, or wait longer."
        )
    notes = [f"no trace came of {_describe(waiting)}."] if waiting else []
    notes += [
        f"rank {rank} was at step {began} when it heard: its trace begins there."
        for rank, (began, _) in sorted(heard.items())
        if began > first
    ]
    return Collected(found, notes, number)


def _describe(where: dict[int, tuple[int, int] | None]) -> str:
    return ", ".join(
        f"rank {rank}, which has not heard of it"
        if steps is None
        else f"rank {rank}, which is at step {steps[1]}"
        for rank, steps in where.items()
    )


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
