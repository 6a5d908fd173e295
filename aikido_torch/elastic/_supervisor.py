# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Members of a job on a cluster: starts them, and replaces dead ones.

The supervisor decides; a `Cluster` acts. One thread calls it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from aikido_torch.elastic._restarts import Restart, RestartPolicy
from aikido_torch.elastic._stages import RELIABLE, TRANSIENT, Role
from aikido_torch.errors import AbortedError, ConfigError, TimedOutError

__all__ = ["Cluster", "Progress", "Supervisor"]

_Handle = TypeVar("_Handle")


@dataclass(frozen=True)
class Progress:
    """State of one started member.

    Attributes:
        state: "pending": the cluster has no place for it yet; "running"; "done";
            "dead".
        result: value of a member that is done.
        reason: words for the log about a dead member.
    """

    state: Literal["pending", "running", "done", "dead"]
    result: Any = None
    reason: str = ""


class Cluster(Protocol[_Handle]):
    """Machines on which members run."""

    def start(self, slot: int, role: Role) -> _Handle:
        """Starts a new member, as soon as there is a place for it."""

    def look(self, member: _Handle) -> Progress:
        """State of a member. Does not block."""

    def stop(self, member: _Handle) -> None:
        """Ends a member. Idempotent."""

    def is_over(self) -> bool:
        """True if the members have done all steps of the job. Does not block."""


@dataclass
class _Slot(Generic[_Handle]):
    """Place of one member; its members follow each other."""

    number: int
    role: Role
    start_s: float | None = 0.0  # time of the next start; None: no start
    member: _Handle | None = None
    has_run: bool = False
    restarts_s: list[float] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)  # of the last member that is done
    end: Restart | None = None


class Supervisor(Generic[_Handle]):
    """Keeps as many members running as the cluster has places for.

    Args:
        cluster: starts and ends members.
        scaling: lowest and highest number of members.
        num_reliable: number of reliable members, which are started first.
        policy: restarts of each member.
        timeout_s: limit for the lowest number of members to run, in seconds.
        tell: called with one line per event.
        clock: monotonic clock, in seconds.

    Raises:
        ConfigError: a number is wrong.
    """

    def __init__(
        self,
        cluster: Cluster[_Handle],
        scaling: tuple[int, int],
        *,
        num_reliable: int,
        policy: RestartPolicy,
        timeout_s: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._least, most = _checked(scaling)
        if not 1 <= num_reliable <= most:
            raise ConfigError(
                f"elastic launch: there are {num_reliable} reliable members of at most "
                f"{most} members; give a number from 1 to {most}."
            )
        self._cluster = cluster
        self._policy = policy
        self._timeout_s = timeout_s
        self._tell = tell
        self._clock = clock
        self._begin_s = clock()
        self._has_begun = False
        self._slots: list[_Slot[_Handle]] = [
            _Slot(number, RELIABLE if number < num_reliable else TRANSIENT)
            for number in range(most)
        ]

    @property
    def results(self) -> list[Any]:
        """Values of the members that are done, in the order of their slots."""
        return [result for slot in self._slots for result in slot.results]

    def turn(self) -> bool:
        """Looks at each member once; returns True when the job is over.

        The job is over when its members have done all steps and have returned. Members
        without a place are not waited for. A member that returns earlier has left after
        an eviction notice, and is replaced.

        Raises:
            AbortedError: members were given up, and fewer than the lowest number are
                left.
            TimedOutError: the cluster has no places for the lowest number of members.
        """
        now_s = self._clock()
        num_running = num_possible = 0
        is_over = self._cluster.is_over()
        for slot in self._slots:
            if is_over and not slot.has_run and slot.end is None:
                self._drop(slot)
            else:
                num_running += self._look(slot, now_s, is_over=is_over) == "running"
            num_possible += slot.end is None or slot.end.verdict == "done"
        self._has_begun |= num_running >= self._least
        if is_over:
            return num_running == 0 and all(s.end for s in self._slots)
        if num_possible < self._least:
            reasons = [s.end.reason for s in self._slots if s.end]
            raise AbortedError(
                f"elastic launch: {num_possible} members are left and {self._least} "
                f"are needed, since members were given up: {reasons[-1]}."
            )
        if not self._has_begun and now_s - self._begin_s > self._timeout_s:
            raise TimedOutError(
                f"elastic launch: the cluster has started {num_running} members within "
                f"{self._timeout_s:g} s, and {self._least} are needed; add machines, "
                "or lower the resources of a member or the lowest number of scaling."
            )
        return False

    def close(self) -> None:
        """Ends all members. Idempotent."""
        for slot in self._slots:
            if slot.member is not None:
                self._cluster.stop(slot.member)
                slot.member = None

    def _look(self, slot: _Slot[_Handle], now_s: float, *, is_over: bool) -> str:
        if slot.member is None:
            if slot.start_s is None or slot.start_s > now_s:
                return "pending"
            slot.start_s = None
            slot.member = self._cluster.start(slot.number, slot.role)
        found = self._cluster.look(slot.member)
        if found.state == "running" and not slot.has_run:
            slot.has_run = True
            self._tell(f"member {slot.number} ({slot.role}) runs")
        if found.state in ("pending", "running"):
            return found.state
        self._cluster.stop(slot.member)
        slot.member = None
        if found.state == "done":
            slot.results = [found.result]
            text = self._end(slot, now_s, is_over=is_over)
        else:
            text = self._replace(slot, now_s, found.reason)
        self._tell(f"member {slot.number} ({slot.role}) {text}")
        return "ended"

    def _end(self, slot: _Slot[_Handle], now_s: float, *, is_over: bool) -> str:
        if is_over:
            slot.end = Restart("done", 0.0, "the job is over")
            return "is done"
        slot.start_s, slot.has_run = now_s + self._policy.first_pause_s, False
        return f"has left; a new one starts in {self._policy.first_pause_s:g} s"

    def _replace(self, slot: _Slot[_Handle], now_s: float, reason: str) -> str:
        decision = self._policy.decide(1, now_s=now_s, restarts_s=slot.restarts_s)
        slot.has_run = False
        if decision.verdict == "restart":
            slot.restarts_s.append(now_s)
            slot.start_s = now_s + decision.pause_s
            return f"died ({reason}); a new one starts in {decision.pause_s:g} s"
        text = f"died ({reason}) and is given up"
        slot.end = Restart("give_up", 0.0, f"member {slot.number} {text}")
        return text

    def _drop(self, slot: _Slot[_Handle]) -> None:
        """Ends a slot without a running member, since the job is over."""
        if slot.member is not None:
            self._cluster.stop(slot.member)
        slot.member = None
        slot.end = Restart("done", 0.0, "the job is over")


def _checked(scaling: object) -> tuple[int, int]:
    if (
        isinstance(scaling, tuple | list)
        and len(scaling) == 2
        and all(type(number) is int for number in scaling)
        and 1 <= scaling[0] <= scaling[1]
    ):
        return scaling[0], scaling[1]
    raise ConfigError(
        f"elastic launch: scaling is {scaling!r}; it takes the lowest and the highest "
        "number of members, such as (2, 8)."
    )
