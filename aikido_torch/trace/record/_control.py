# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Thread of each rank that traces steps on request.

It polls the store of the job a few times a second, and affects the training only by
arming the recorder. An error ends the thread, and nothing else.
"""

import atexit
import itertools
import threading
import time
import warnings
from collections.abc import Callable

from torch.distributed.distributed_c10d import Store

from aikido_torch import _C
from aikido_torch.errors import AikidoError
from aikido_torch.trace.record._trace_store import Board, Told, own_connection

__all__ = ["Control"]

_LOOK_S = 0.25
# Time after which a requester that has a number must have written its steps.
_STEPS_S = 5.0
_BY_HAND = "records by hand (trace.start), or has not saved yet what it has recorded"


class Control:
    """Answers requests for steps until `stop`."""

    def __init__(
        self,
        store: Store,
        recorder: _C.Recorder,
        place: tuple[int, int],
        take: Callable[[], bytes | None],
        *,
        has_ended: Callable[[], bool] = lambda: False,
        look_s: float = _LOOK_S,
    ) -> None:
        """Starts the thread.

        Args:
            store: store of the job.
            recorder: recorder of this process.
            place: rank and size.
            take: returns a dump of the recorded spans as bytes, and empties the
                recorder; None if a caller records by hand and owns the spans.
            has_ended: returns True if the group has ended. A dump needs the clock of
                the group, so the thread ends too.
            look_s: seconds between two polls.
        """
        self._recorder = recorder
        self._rank, size = place
        self._take = take
        self._has_ended = has_ended
        self._look_s = look_s
        self._ended = threading.Event()
        self._board = Board(own_connection(store))
        # Earlier requests are ignored: they may belong to a former job.
        self._seen = self._board.num_requests()
        self._board.listen()
        self._board.join(size)
        self._thread = threading.Thread(
            target=self._run, name="aikido-trace", daemon=True
        )
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        atexit.unregister(self.stop)
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._look_s) and not self._has_ended():
                last = self._board.num_requests()
                while self._seen < last and not self._ended.is_set():
                    self._seen += 1
                    self._answer(self._seen)
        except RuntimeError:  # the store has gone, and with it the job
            return

    def _wanted(self, number: int) -> tuple[int, int] | None:
        """Steps of a request. Its number is visible a moment before its steps."""
        end = time.monotonic() + _STEPS_S
        while True:
            wanted = self._board.wanted(number)
            is_late = time.monotonic() > end or self._board.is_off(number)
            if wanted is not None or is_late or self._ended.wait(self._look_s):
                return wanted

    def _answer(self, number: int) -> None:
        wanted = self._wanted(number)
        if wanted is None or self._board.is_off(number):
            return
        first, last = wanted
        recorder = self._recorder
        heard = recorder.step
        try:
            # Empties the recorder, so that all room is for these steps.
            if self._take() is None:
                self._refuse(number, _BY_HAND)
                return
            recorder.arm_steps(first, last)
            is_wanted = self._stay_until(last, number, heard)
            recorder.arm_steps(0, -1)
            if self._has_ended():
                self._refuse(number, f"has left its group before the end of {last}")
            # No requester would ever clear a trace that is written now.
            elif not is_wanted:
                self._board.clear(number, self._rank)
            # A recording by hand has begun meanwhile.
            elif (data := self._take()) is None:
                self._refuse(number, _BY_HAND)
            else:
                self._board.give(number, self._rank, data)
        except AikidoError as error:
            recorder.arm_steps(0, -1)
            text = f"could not give its trace: {error}".removesuffix(".")
            self._refuse(number, text)
            warnings.warn(f"rank {self._rank} {text}.", stacklevel=1)

    def _stay_until(self, last: int, number: int, heard: int) -> bool:
        """Reports its step until `last` is over. Returns False if the request was
        cancelled.
        """
        for beat in itertools.count():
            now = self._recorder.step
            self._board.tell(number, self._rank, Told(heard, now, beat))
            self._tell_others(number, now, beat)
            is_over = now > last or self._ended.wait(self._look_s) or self._has_ended()
            if self._board.is_off(number):
                return False
            if is_over:
                break
        return True

    def _tell_others(self, number: int, now: int, beat: int) -> None:
        """Reports to later requesters, which wait for their turn, that this rank is
        alive.
        """
        for other in range(number + 1, self._board.num_requests() + 1):
            if not self._board.is_off(other):
                self._board.tell(other, self._rank, Told(now, now, beat))

    def _refuse(self, number: int, why: str) -> None:
        now = self._recorder.step
        self._board.tell(number, self._rank, Told(now, now, refused=why))
