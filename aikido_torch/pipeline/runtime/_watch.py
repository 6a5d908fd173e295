# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""End of a pipeline on all ranks when one rank fails, with the name of that rank.

Note [spread of a failure]
A message that fails is noticed only by its two ends. Other ranks wait for these two, so
a rank that fails sends the reason to all. A rank that computes has not noticed anything
yet. So a thread watches the other ranks for it, and reports when a rank is lost that
this rank still needs. A rank that receives the report of a failure aborts the groups of
messages and of sums, which ends every wait of this rank.

Two kinds of departures are ignored. A rank that left and is no longer needed does not
matter. Neither does a rank that finished its part and left in order: everything that it
sent has arrived, or arrives before its farewell. A message that it did not send fails
its receive.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta

import torch
import torch.distributed as dist

from aikido_torch import _tags
from aikido_torch.errors import (
    AbortedError,
    AikidoError,
    ConfigError,
    PeerLostError,
    TimedOutError,
)

__all__ = ["Failure", "Watch"]

_TAG = _tags.PIPELINE_FAILURE.tag(0)
# Size of a failure note.
_NOTE_BYTES = 2048
# Longest time that a failing rank waits until its note is sent.
_FAREWELL = timedelta(seconds=0.5)
# A rank that reports its failure is lost right afterwards. So a rank that notices the
# loss waits this long for the report.
_HEARING_S = 0.2
# Time between two checks whether a lost rank is needed.
_LOOK_S = 0.25


class Failure:
    """Reason why the pipeline ended; `rank` is the culprit, in the pipeline's group."""

    def __init__(self, text: str, rank: int | None, is_lost: bool) -> None:
        self.text = text
        self.rank = rank
        self.is_lost = is_lost

    def error(self) -> AikidoError:
        """The error to raise on a rank that is not the culprit."""
        kind = PeerLostError if self.is_lost else AbortedError
        return kind(self.text, rank=self.rank, operation="pipeline")

    def to_note(self) -> torch.Tensor:
        """The failure as a message of the fixed size of notes."""
        head = f"{-1 if self.rank is None else self.rank} {int(self.is_lost)} "
        text = (head + self.text).encode()[:_NOTE_BYTES]
        return torch.frombuffer(bytearray(text.ljust(_NOTE_BYTES)), dtype=torch.uint8)

    @classmethod
    def from_note(cls, note: torch.Tensor) -> "Failure":
        """The failure in a message of `to_note`."""
        told = bytes(note.tolist()).decode(errors="replace").rstrip()
        rank, is_lost, text = told.split(" ", 2)
        return cls(text, int(rank) if int(rank) >= 0 else None, is_lost == "1")


class Watch:
    """Watch of one rank, with a thread of its own until `close`.

    Args:
        group: group of the messages, on backend aikido.
        name_of: name of a rank in error texts: 'stage 1 (rank 2)'.
        needs: returns True if this rank still waits for something from a rank.
        sums: groups of the replicas of each stage of this rank. All groups are aborted
            when a rank fails.
        replicas_of: the other ranks with the stages of a rank.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        name_of: Callable[[int], str],
        needs: Callable[[int], bool],
        sums: Iterable[dist.ProcessGroup] = (),
        *,
        replicas_of: Callable[[int], list[int]] = lambda rank: [],
    ) -> None:
        self._group = group
        self._sums = list(sums)
        self._name_of = name_of
        self._needs = needs
        self._replicas_of = replicas_of
        self._events: queue.SimpleQueue[tuple[int, BaseException | None]]
        self._events = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failure: Failure | None = None
        self._is_closed = False
        self._is_over = threading.Event()
        self._others = [r for r in range(group.size()) if r != group.rank()]
        self._notes = {
            r: torch.empty(_NOTE_BYTES, dtype=torch.uint8) for r in self._others
        }
        for rank in self._others:
            self._listen(rank)
        self._thread = threading.Thread(
            target=self._run, name="aikido-pipeline-watch", daemon=True
        )
        self._thread.start()

    @property
    def failure(self) -> Failure | None:
        """The failure that ended the pipeline; None if it runs."""
        return self._failure

    def fail(self, error: BaseException, what: str) -> Failure:
        """Reports that this rank cannot go on, and returns the failure that others
        receive.

        Args:
            error: the error of this rank.
            what: name of this rank in error texts: 'stage 1 (rank 2)'.
        """
        if isinstance(error, AikidoError) and not isinstance(error, ConfigError):
            self._is_over.wait(_HEARING_S)
        with self._lock:
            if self._failure is not None:
                return self._failure
            self._failure = failure = self._failure_of(error, what)
            self._is_over.set()
        self._tell_all(failure)
        return failure

    def close(self) -> None:
        """Stops listening."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._events.put((-1, None))
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def _failure_of(self, error: BaseException, what: str) -> Failure:
        if isinstance(error, PeerLostError) and error.rank is not None:
            return self._loss_of(error.rank, error)
        rank = self._group.rank()
        return Failure(
            f"{what} has failed: {type(error).__name__}: {error}", rank, is_lost=False
        )

    def _loss_of(self, rank: int, error: BaseException) -> Failure:
        name, others = self._name_of(rank), self._replicas_of(rank)
        if not others:
            text = (
                f"{name} is lost, and nobody else has what it did: {error}. Start all "
                "ranks again and restore the newest checkpoint."
            )
        else:
            who = " and ".join(map(str, others))
            have = f"Rank {who} has" if len(others) == 1 else f"Ranks {who} have"
            text = (
                f"{name} is lost, and with it the micro-batches that it had under way: "
                f"{error}. {have} the same weights, but the schedule needs all "
                "replicas. Start all ranks again, or fewer with a schedule of fewer "
                "replicas, and restore the newest checkpoint."
            )
        return Failure(text, rank, is_lost=True)

    def _tell_all(self, failure: Failure) -> None:
        note = failure.to_note()
        works = []
        for rank in self._others:
            with contextlib.suppress(Exception):
                works.append(self._group.send([note], rank, _TAG))
        for work in works:
            with contextlib.suppress(Exception):
                work.wait(_FAREWELL)
        self._end_groups()

    def _end_groups(self) -> None:
        for group in (self._group, *self._sums):
            with contextlib.suppress(Exception):
                group.shutdown()

    def _listen(self, rank: int) -> None:
        def heard(future: torch.futures.Future[object]) -> None:
            try:
                future.value()
            except Exception as error:
                self._events.put((rank, error))
            else:
                self._events.put((rank, None))

        try:
            work = self._group.recv([self._notes[rank]], rank, _TAG)
        except Exception as error:
            self._events.put((rank, error))
        else:
            work.get_future().add_done_callback(heard)

    def _run(self) -> None:
        lost: dict[int, BaseException] = {}
        while not self._is_over.is_set():
            try:
                rank, error = self._events.get(timeout=_LOOK_S if lost else None)
            except queue.Empty:
                # A rank that was only silent may be back.
                for rank in [*lost]:
                    del lost[rank]
                    self._listen(rank)
                continue
            if self._is_closed:
                return
            if error is None:
                self._hear(Failure.from_note(self._notes[rank]))
            elif isinstance(error, TimedOutError):
                self._listen(rank)
            elif not isinstance(error, PeerLostError):
                return  # the group was ended by this rank
            elif self._needs(rank) and not _has_left_in_order(error):
                self.fail(error, "")
            else:
                lost[rank] = error

    def _hear(self, failure: Failure) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = failure
            self._is_over.set()
        self._end_groups()


def _has_left_in_order(error: BaseException) -> bool:
    """True if the rank destroyed its group; only the text of the error shows that."""
    return "has left group" in str(error)
