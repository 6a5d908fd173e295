# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Detection of a call that ranks make in different steps, with its line of code.

Note [calls in different steps]
The buckets of a model and the calls of the loop have separate sequence numbers, because
they run on separate groups. So the engine does not see that one rank makes a call while
another rank trains.

In each correct loop, all ranks have made the same number of calls before the backward
of a step begins. So each rank records this number for each step (`Counts`), and sends
messages:

```text
sender                                     content
a rank without progress for one second     its next step and its number of calls
each rank, every 25th step                 the step and its number of calls
a rank after a step with an unusual count  the step and its number of calls
```

The first kind of message finds deadlocks. If a rank has begun that step with fewer
calls, it never makes the missing call in time, and all ranks would wait for each other.
This rank reports it: the call fails on all ranks with a text that names ranks, steps
and the line of the loop.

The other two kinds serve late ranks. A rank that was brought past some steps and finds
fewer calls than the message says skips the numbers of the missing calls.
"""

import atexit
import contextlib
import json
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from aikido_torch import _C, _tags
from aikido_torch._job_ranks import say_both
from aikido_torch.errors import AikidoError

__all__ = ["CallWatch", "CountNews", "Counts", "Place", "Standstill"]

_MESSAGE_BYTES = 1024
_MOST_TOGETHER = 8
_LOOK_S = 0.25
_CLOSE_S = 1.0
_EXIT_S = 60.0  # For the end of the group, which takes shutdown.linger_ms at most.
_STILL_S = 1.0  # Time without progress after which a rank tells its place.
_SURE_S = 1.0  # Time after which a missing call is an error.
_MOST_HOOKS = 4096
_TOLD_STEPS = 25
# Least number of steps between messages if steps have different numbers of calls.
_TOLD_APART = 5
_SHOWN_BYTES = 200  # Bytes of the text that names the call and its line.


@dataclass(frozen=True)
class Place:
    """Progress of one rank through the loop.

    Attributes:
        rank: rank in the model's group.
        step: the next step whose backward it begins, or the step that it has just
            begun.
        calls: number of calls that it has made before this backward.
        where: the call that it executes, and the line; "" if unknown.
        is_still: True if it has made no progress for a second.
    """

    rank: int
    step: int
    calls: int
    where: str = ""
    is_still: bool = True


class Counts:
    """Numbers of calls that this rank had made when each backward began."""

    def __init__(self) -> None:
        self._hooks: deque[tuple[int, int]] = deque(maxlen=_MOST_HOOKS)

    def on_hook(self, step: int, calls: int) -> None:
        """The backward of `step` begins after `calls` calls."""
        self._hooks.append((step, calls))

    def add(self, count: int) -> None:
        """Adds `count` call numbers that were skipped before the last backward."""
        hooks = [(step, calls + count) for step, calls in self._hooks]
        self._hooks = deque(hooks, maxlen=_MOST_HOOKS)

    def by(self, step: int) -> int | None:
        """Calls before the first backward from `step` on; None if there was none."""
        found = self._first_from(step)
        return None if found is None else found[1]

    def lacks(self, place: Place) -> int | None:
        """The step that this rank has begun without a call of `place`; None if none."""
        found = self._first_from(place.step)
        return found[0] if found is not None and found[1] < place.calls else None

    def _first_from(self, step: int) -> tuple[int, int] | None:
        if not self._hooks or step < self._hooks[0][0]:
            return None
        found = None
        for hook in reversed(self._hooks):
            if hook[0] < step:
                break
            found = hook
        return found


class CountNews:
    """Rule for the steps in which a rank sends its number of calls without a
    standstill.

    These are each 25th step, and a step after a step with an unusual number of calls.
    A number is sent once. Pure.
    """

    def __init__(self) -> None:
        self._sent_calls = -1
        self._sent_at = 0  # The step of the last message.
        # Number of calls at the last backward, and its increase since the one before.
        self._last = (-1, -1)
        # True if the increase has changed since the last message.
        self._is_irregular = False

    def is_due(self, step: int, calls: int) -> bool:
        """The backward of `step` begins after `calls` calls; to be called once for
        each step.

        Returns:
            True if the rank must send a message now.
        """
        before, more = self._last
        self._last = calls, -1 if before < 0 else calls - before
        self._is_irregular |= more >= 0 and calls - before != more
        is_due = self._is_irregular and step - self._sent_at >= _TOLD_APART
        if not (is_due or step % _TOLD_STEPS == 0) or calls == self._sent_calls:
            return False
        self._sent_calls, self._sent_at, self._is_irregular = calls, step, False
        return True


class Standstill:
    """Detector of a rank without progress for one second. Pure.

    Args:
        now: time in seconds, as in `is_new`.
    """

    def __init__(self, now: float) -> None:
        self._since = now
        self._last: tuple[int, int] = (-1, -1)
        self._reported: tuple[int, int] = (-1, -1)

    def is_new(self, here: tuple[int, int], now: float) -> bool:
        """True once for each place at which the rank stays for a second.

        Args:
            here: the next step of the rank, and its number of calls.
            now: time in seconds; it never decreases.
        """
        if here != self._last:
            self._last, self._since = here, now
        elif now - self._since >= _STILL_S and here != self._reported:
            self._reported = here
            return True
        return False


class CallWatch:
    """One rank's end of the messages, with a thread of its own.

    Args:
        calls: backend of the model's group, on which the loop makes its calls.
        buckets: backend that carries the messages.
        number: equal on all ranks, and different for each watch on `buckets`.
        at_end: called by another thread after `ended` is set.

    Attributes:
        ended: ends the thread when set.
        told: places of other ranks that `missing` has not processed.
        failure: text of the error that ranks must raise, because a call was made in
            different steps; "" if there is none.
        quiet: native record of steps that begin without `on_hook`. Such steps end when
            `told` or `failure` gets a value.
    """

    def __init__(
        self,
        calls: _C.AikidoBackend,
        buckets: _C.AikidoBackend,
        *,
        number: int,
        at_end: Callable[[], None],
    ) -> None:
        self._calls, self._buckets = calls, buckets
        self.quiet: _C.QuietSteps | None = None
        self._tag = _tags.CALL_WATCH.cyclic(number)
        self._thread_id = threading.get_ident()  # Thread id of the training thread.
        self._next_step = 0
        self._counts = Counts()
        self._lock = threading.Lock()  # Protects _counts and told.
        self.told: list[Place] = []
        self._count_news = CountNews()
        self.failure = ""
        self.ended = threading.Event()
        self._sending = threading.Lock()
        self._incoming = [self._listen() for _ in range(_MOST_TOGETHER)]
        self._sent: list[tuple[torch.Tensor, Any]] = []
        self._standstill = Standstill(time.monotonic())
        self._suspects: dict[int, tuple[Place, float]] = {}
        self._thread = threading.Thread(
            target=_run,
            args=(weakref.ref(self), self.ended, at_end),
            name="aikido-calls",
            daemon=True,
        )
        self._thread.start()
        # A thread that holds the GIL at the end of the process would crash the process.
        atexit.register(_close, weakref.WeakMethod(self.close), self._thread)

    # ---- the training thread ----

    def on_hook(self, step: int) -> int:
        """The backward of `step` begins. Returns the number of calls made before it."""
        calls = self._calls.num_calls
        with self._lock:
            self._counts.on_hook(step, calls)
            self._next_step = step + 1
        if self._count_news.is_due(step, calls):
            self._tell({"place": [self._own, step, calls, "", False]})
        return calls

    def on_quiet(self) -> None:
        """Records quiet steps that have begun, as `on_hook` does for other steps.

        Any thread may call it. This rank had made the same number of calls in all of
        them.
        """
        if self.quiet is None:
            return
        with self._lock:
            step, calls = self.quiet.place()
            if step >= self._next_step:
                self._counts.on_hook(step, calls)
                self._next_step = step + 1

    def on_moved(self, steps: int) -> None:
        """This rank was brought past steps, so that `steps` steps are behind it."""
        self._next_step = steps

    def missing(self, steps: int) -> int:
        """Number of calls that this rank lacks, compared with other ranks at the same
        step.

        Args:
            steps: number of steps behind this rank. Messages about later steps stay in
                `told`.
        """
        with self._lock:
            told, self.told = self.told, []
            lacking = [0]
            for place in told:
                own = self._counts.by(place.step)
                if own is None and place.step < steps:
                    own = self._calls.num_calls  # This rank has gone past that step.
                if own is None:
                    self.told.append(place)
                else:
                    lacking.append(place.calls - own)
        return max(lacking)

    def on_repaired(self, count: int) -> None:
        """Records that `count` call numbers were skipped because of `missing`."""
        with self._lock:
            self._counts.add(count)

    def fail_on(self, ranks: Collection[int], text: str) -> None:
        """Each of `ranks` raises `text`, also if it waits for a bucket."""
        self._tell({"failure": text}, ranks)

    def refuse(self, text: str, missing: int) -> None:
        """All ranks raise `text`; the next `missing` calls fail. Any thread."""
        self._tell({"failure": text})
        for _ in range(missing):
            self._calls.leave_out_call(text, True)
        self._fail(text)

    def close(self) -> None:
        """Ends the thread, and waits for it. Idempotent."""
        self.ended.set()
        self._thread.join(timeout=_CLOSE_S)

    # ---- the watch's own thread ----

    @property
    def _own(self) -> int:
        return int(self._buckets.place[0])

    def _listen(self) -> tuple[torch.Tensor, Any]:
        tensor = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
        backend: Any = self._buckets
        return tensor, backend.recv_anysource([tensor], self._tag)

    def _tell(
        self, fields: dict[str, Any], ranks: Collection[int] | None = None
    ) -> None:
        """Sends `fields` to `ranks`; None: to all other ranks."""
        text = json.dumps(fields).encode()[:_MESSAGE_BYTES]
        tensor = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
        tensor[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        own, size = self._buckets.place
        backend: Any = self._buckets
        with self._sending:
            self._sent = [s for s in self._sent if not s[1].is_completed()]
            for rank in range(size) if ranks is None else ranks:
                if rank == own:
                    continue
                try:
                    work = backend.send([tensor], rank, self._tag)
                except AikidoError:
                    return  # the next call of the training tells why
                self._sent.append((tensor, work))

    def look(self) -> bool:
        """One iteration of the thread. Returns True if another one must follow."""
        while self._incoming[0][1].is_completed():
            tensor, work = self._incoming.pop(0)
            try:
                work.wait()
            except AikidoError:
                return False  # the group has ended, or a rank is lost
            self._take(tensor.numpy().tobytes())
            self._incoming.append(self._listen())
        self.on_quiet()
        if not self.failure:
            self._tell_if_still(time.monotonic())
            self._judge(time.monotonic())
        return not self.failure

    def _take(self, message: bytes) -> None:
        fields = json.loads(message.rstrip(b"\0"))
        if "failure" in fields:
            self._fail(fields["failure"])
            return
        place = Place(*fields["place"])
        if not place.is_still:
            with self._lock:
                self.told = [*self.told[-_MOST_TOGETHER:], place]
            self._end_quiet_steps()
        else:
            self._suspects[place.rank] = (place, time.monotonic())

    def _tell_if_still(self, now: float) -> None:
        here = (self._next_step, self._calls.num_calls)
        if self._standstill.is_new(here, now):
            where = call_of(self._thread_id)
            self._tell({"place": [self._own, *here, where, True]})

    def _judge(self, now: float) -> None:
        for rank, (place, since) in list(self._suspects.items()):
            with self._lock:
                step = self._counts.lacks(place)
            missing = place.calls - self._calls.num_calls
            if step is None or missing <= 0:
                # That rank may still begin its step without the call.
                self._suspects[rank] = (place, now)
            elif now - since >= _SURE_S:
                self._refuse(place, step, missing)
                return

    def _refuse(self, place: Place, step: int, missing: int) -> None:
        own = self._own
        call = place.where or "a call"
        text = (
            f'call {place.calls} of group "{self._calls.group_name}" is {call} on rank '
            f"{place.rank}, before the backward of step {place.step}; rank {own} has "
            f"begun the backward of step {step} without it, so they would wait for "
            "each other. catch_up() takes a late rank past steps, and so past the "
            "calls that the loop makes in some of them. Make these calls where "
            "handle.every(n) is true, which all ranks see at the same step, instead "
            "of where step % n == 0; or on all ranks in each step."
        )
        self.refuse(say_both(text, self._calls), missing)

    def _end_quiet_steps(self) -> None:
        if self.quiet is not None:
            self.quiet.set_alarm(True)

    def _fail(self, text: str) -> None:
        self.failure = text
        self._end_quiet_steps()
        # A rank that waits for a bucket that never comes then raises this text.
        self.ended.wait(2 * _LOOK_S)
        self._buckets.abort()


# The last reference to a handle may go in any thread, and in the middle of a step. So
# the slow work at its end is done by this thread.
def _run(
    watch: "weakref.ref[CallWatch]", ended: threading.Event, at_end: Callable[[], None]
) -> None:
    goes_on = True
    while goes_on and not ended.wait(_LOOK_S):
        alive = watch()
        try:
            goes_on = alive is not None and alive.look()
        except AikidoError:
            goes_on = False  # the group has ended
        del alive
    ended.wait()
    if not threading.main_thread().is_alive():
        # The process ends, so starting another thread would not keep it alive.
        at_end()
        return
    # Other ranks may still need results of this rank, so the process must wait for this
    # thread. Threads that a daemon thread starts are daemons unless told otherwise.
    with contextlib.suppress(RuntimeError):  # Raised if the process is already ending.
        threading.Thread(target=at_end, name="aikido-end", daemon=False).start()


def _close(
    close: "weakref.WeakMethod[Callable[[], None]]", thread: threading.Thread
) -> None:
    """Ends the thread at the end of the process.

    A thread that is still in C++ at that moment would abort the process.
    """
    if (alive := close()) is not None:
        alive()
        thread.join(timeout=_EXIT_S)  # Waits for `at_end`.


def call_of(thread_id: int) -> str:
    """The torch.distributed function that a thread executes, and the caller's line."""
    frame = sys._current_frames().get(thread_id)
    name = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("torch.distributed"):
            function = frame.f_code.co_name
            name = name if function in ("wrapper", "wait") else function
        elif name:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            return f"{name} at {place}"[:_SHOWN_BYTES]
        frame = frame.f_back
    return ""
