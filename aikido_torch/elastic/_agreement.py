# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Agreement of the survivors of a death about the next roster, through the store.

Each survivor announces that it is alive. A thread announces a survivor whose training
thread still computes. A reliable survivor proposes the next roster as soon as
`decide_survivors` allows it, and the store accepts the first proposal only.
"""

import json
import threading
import time
from collections.abc import Callable, Collection

from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._roster import JobEndsError, Member, Roster, decide_survivors
from aikido_torch.errors import AikidoError

__all__ = ["Watch", "agree"]

_POLL_S = 0.005
_WATCH_S = 0.02
_REPORT_S = 0.5


def agree(
    endpoint: Endpoint,
    roster: Roster,
    own: Member,
    lost: Callable[[], Collection[int]],
    *,
    grace_s: float,
    timeout_s: float,
) -> Roster:
    """The roster after deaths in `roster`; the same for all its survivors.

    Args:
        endpoint: a connection of the calling thread.
        roster: the members before the death.
        own: the calling member.
        lost: returns the numbers of the members whose connection to this member broke.
        grace_s: seconds after which a silent member counts as lost.
        timeout_s: limit for the agreement.

    Returns:
        The next roster. The calling member may be missing in it: it was too late.

    Raises:
        JobEndsError: too few reliable members are alive.
        PeerLostError: the store does not answer.
    """
    key = f"lost/{roster.epoch}"
    endpoint.set(f"{key}/{own.number}", json.dumps(sorted(lost())))
    endpoint.set(f"{key}/any", "1")
    begin = time.monotonic()
    known_lost, answered = set[int](), {own.number}
    while True:
        if (text := endpoint.read(f"next/{roster.epoch}")) is not None:
            return Roster.decode(text)
        known_lost.update(lost())
        for member in roster.members:
            if member.number in answered:
                continue
            if (text := endpoint.read(f"{key}/{member.number}")) is not None:
                answered.add(member.number)
                known_lost.update(json.loads(text))
        waited_s = time.monotonic() - begin
        decision = decide_survivors(roster, answered, known_lost, waited_s, grace_s)
        if decision.verdict == "go" and own.is_reliable:
            absent = {m.number for m in roster.members} - decision.numbers
            following = roster.changed(endpoint.add("epoch"), without=absent)
            return endpoint.follow(roster, following)
        if waited_s > timeout_s:
            raise JobEndsError(
                f"elastic: the members cannot agree on the next roster after epoch "
                f"{roster.epoch}: {decision.reason} after {timeout_s:.0f} s. The job "
                "ends; start it again from its last checkpoint."
            )
        time.sleep(_POLL_S)


class _Requests:
    """Requests to join that no leader has answered yet. For one thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._num_answered = 0  # all requests up to this number have an answer
        self._signs: dict[int, str | None] = {}

    def waiting(self) -> list[Member]:
        """Members that wait for admission, and were alive since the last call."""
        found = []
        last = self._endpoint.add("requests", 0)
        for number in range(self._num_answered + 1, last + 1):
            member = self._endpoint.request_of(number)
            if member is None:
                if self._endpoint.has_answer(number) and (
                    number == self._num_answered + 1
                ):
                    self._num_answered = number
                continue
            sign = self._endpoint.read(f"alive/{number}")
            if sign is not None and sign != self._signs.get(number, sign):
                found.append(member)
            self._signs[number] = sign
        return found


class Watch:
    """Thread that announces this member after deaths, and looks for joining processes.

    All methods are for the training thread. The thread ends with `close`, or with the
    process.

    Args:
        endpoint: the thread makes a connection of its own to the same store.
        number: number of this member.
        on_store_lost: called once by the thread if the store does not answer.
    """

    def __init__(
        self, endpoint: Endpoint, number: int, on_store_lost: Callable[[str], None]
    ) -> None:
        self._endpoint = endpoint.again()
        self._number = number
        self._on_store_lost = on_store_lost
        self._lock = threading.Lock()
        self._epoch = 0
        self._alarm = -1  # epoch in which a death was announced
        self._is_leader = False
        self._waiting: list[Member] = []
        self._notice_s: float | None = None
        self._status: str | None = None  # to be written
        self._reported_s = -_REPORT_S
        self._is_closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="aikido-elastic", daemon=True
        )
        self._thread.start()

    def follow(self, roster: Roster) -> None:
        """The members are those of `roster` from now on."""
        with self._lock:
            self._epoch = roster.epoch
            self._is_leader = roster.leader.number == self._number
            known = {m.number for m in roster.members}
            self._waiting = [m for m in self._waiting if m.number not in known]

    def has_alarm(self) -> bool:
        """True if a member of the present roster has announced a death."""
        return self._alarm == self._epoch

    def waiting(self) -> list[Member]:
        """Processes that wait for admission. Empty except on the leader."""
        with self._lock:
            return list(self._waiting) if self._is_leader else []

    def notice_s(self) -> float | None:
        """Seconds of warning of an eviction by the command line; None: no eviction."""
        with self._lock:
            return self._notice_s

    def report(self, status: Callable[[], str]) -> None:
        """Lets the thread write the status of the job, at most twice a second.

        Args:
            status: makes the text, in the calling thread. Only the leader calls it.
        """
        now_s = time.monotonic()
        if self._is_leader and now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            text = status()
            with self._lock:
                self._status = text

    def close(self) -> None:
        """Ends the thread."""
        self._is_closed.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        announced = 0
        requests = _Requests(self._endpoint)
        while not self._is_closed.wait(_WATCH_S):
            with self._lock:
                epoch, is_leader = self._epoch, self._is_leader
                status, self._status = self._status, None
            try:
                if status is not None:
                    self._endpoint.set("status", status)
                is_new = epoch > announced
                if is_new and self._endpoint.read(f"lost/{epoch}/any") is not None:
                    self._endpoint.decide(f"lost/{epoch}/{self._number}", "[]")
                    announced = self._alarm = epoch
                found = requests.waiting() if is_leader else []
                text = self._endpoint.read(f"evict/{self._number}")
            except AikidoError as error:
                self._on_store_lost(str(error))
                return
            with self._lock:
                self._waiting = found
                if text:
                    self._notice_s = float(text)
