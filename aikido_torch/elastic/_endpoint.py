# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Endpoint of an elastic job: a TCP store with requests to join and rosters.

Training does not depend on it. A step reads and writes nothing here; only a join, a
death and the command line do. Each thread has a connection of its own.

| Key | Value |
|---|---|
| `requests` | number of requests so far |
| `request/N` | member N as it asks to join; empty after an answer |
| `alive/N` | counter of member N, which grows while the member waits |
| `admitted/N` | the roster that has admitted member N |
| `epoch` | number of epochs so far, so that no epoch is used twice |
| `founded` | number of the member that began the job |
| `fit` | parameters and data that all members must have |
| `ended` | last step of a job that is over |
| `lost/E/N` | member N of epoch E is alive after a death: members that it has lost |
| `next/E` | the roster after epoch E; the first writer decides |
| `status` | step, roster and stage, for the command line |
| `evict/N` | seconds until member N is evicted |
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any, TypeVar

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistNetworkError, DistStoreError

from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.errors import ConfigError, PeerLostError, TimedOutError

__all__ = ["Endpoint"]

_POLL_S = 0.005
_T = TypeVar("_T")


class Endpoint:
    """One connection to the store of a job. For one thread.

    Args:
        address: "host:port" of a `torch.distributed.TCPStore`.
        job: name of the job; one store serves several jobs.
        timeout_s: limit of one answer of the store, in seconds.

    Raises:
        ConfigError: the address has another form.
        PeerLostError: nothing answers there.
    """

    def __init__(self, address: str, job: str, timeout_s: float = 10.0) -> None:
        self.address, self._job, self._timeout_s = address, job, timeout_s
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(
                f"elastic: endpoint is {address!r}; give host:port of the store of the "
                "job."
            )
        self._store: Store = self._ask(
            lambda: PrefixStore(
                f"aikido/elastic/{job}",
                TCPStore(
                    host.strip("[]"),
                    int(port),
                    is_master=False,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=timeout_s),
                ),
            )
        )

    def again(self) -> "Endpoint":
        """A further connection to the same job, for another thread."""
        return Endpoint(self.address, self._job, self._timeout_s)

    def add(self, key: str, amount: int = 1) -> int:
        """Adds to a counter and returns the sum."""
        total: int = self._ask(lambda: self._store.add(key, amount))
        return total

    def set(self, key: str, value: str) -> None:
        """Writes a value."""
        self._ask(lambda: self._store.set(key, value))

    def read(self, key: str) -> str | None:
        """The value of a key; None if there is none yet."""
        if not self._ask(lambda: self._store.check([key])):
            return None
        value: bytes = self._ask(lambda: self._store.get(key))
        return value.decode()

    def decide(self, key: str, value: str) -> str:
        """Writes a value if the key has none, and returns the value of the key."""
        found: bytes = self._ask(lambda: self._store.compare_set(key, "", value))
        return found.decode()

    def follow(self, roster: Roster, following: Roster) -> Roster:
        """Proposes the roster after `roster`; returns the roster that the store has."""
        return Roster.decode(self.decide(f"next/{roster.epoch}", following.encode()))

    def request(self, member: Member, timeout_s: float) -> Roster:
        """Asks for admission of a member, and waits for its first roster.

        Raises:
            TimedOutError: no reliable member has admitted it in time.
            ConfigError: the job is over.
        """
        number = member.number
        self.set(f"request/{number}", json.dumps(asdict(member)))
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if (text := self.read(f"admitted/{number}")) is not None:
                return Roster.decode(text)
            if (step := self.read("ended")) is not None:
                raise ConfigError(
                    f"elastic.join: the job {self._job!r} at {self.address} has ended "
                    f"with step {step}; give a new job another name or endpoint."
                )
            self.add(f"alive/{number}")
            time.sleep(_POLL_S)
        self.set(f"request/{number}", "")
        raise TimedOutError(
            f"elastic.join: no reliable member has admitted this process to the job "
            f"{self._job!r} at {self.address} in {timeout_s:g} s; start a process with "
            'role="reliable" there, or give join a longer timeout.'
        )

    def request_of(self, number: int) -> Member | None:
        """The member with this number if it waits for an answer."""
        text = self.read(f"request/{number}")
        return Member(**json.loads(text)) if text else None

    def has_answer(self, number: int) -> bool:
        """True if this number does not wait any more."""
        return self.read(f"request/{number}") == ""

    def admit(self, member: Member, roster: Roster) -> None:
        """Tells a member its first roster, and removes its request."""
        self.set(f"admitted/{member.number}", roster.encode())
        self.set(f"request/{member.number}", "")

    def _ask(self, question: Callable[[], _T]) -> _T:
        try:
            return question()
        except (DistStoreError, DistNetworkError, RuntimeError) as error:
            raise PeerLostError(
                f"elastic: the store of the job at {self.address} does not answer "
                f"({_first_line(error)}); start it again, or give the endpoint of a "
                "store that runs."
            ) from None


def _first_line(error: Any) -> str:
    return str(error).splitlines()[0][:200]
