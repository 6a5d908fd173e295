# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Messages that bring the data of an item from its owner to the rank that took it.

```text
message   sender   content, as int64                         tag
request   helper   serial number, label                      even
header    owner    serial number, bytes of the data or -1    odd
data      owner    the bytes                                 odd
```

-1 means that the owner does not have the item. The requests come to a thread of the
owner, so the training thread of the owner need not look for them. All transfers are
posted and polled, and `fetch` has a deadline. A late answer to a request is discarded.
"""

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch import _C, _tags
from aikido_torch.errors import AbortedError, AikidoError

__all__ = ["ItemMail"]

_ABSENT = -1
_POLL_S = 0.0002  # of a rank that waits for data
_LOOK_S = 0.002  # between two looks of the thread
_IDLE_LOOKS = 10  # looks of an idle thread without a look at the requests
_RETRY_S = 0.1  # after a failed receive, as from a silent rank
_CLOSE_S = 1.0


@dataclass
class _Posted:
    """Posted receive."""

    tensor: torch.Tensor
    work: dist.Work

    def numbers(self) -> tuple[int, int]:
        """The received numbers. Raises AikidoError if the receive failed."""
        self.work.wait()
        first, second = self.tensor.tolist()
        return first, second


class ItemMail:
    """One rank's end of the messages.

    Threads: `fetch` is for the training thread. `data_of` of `serve` is called by a
    thread of this object.

    Args:
        backend: backend of the group.
        number: equal on all ranks, and different for each model of a group.
    """

    def __init__(self, backend: _C.AikidoBackend, number: int) -> None:
        self._backend: Any = backend
        self._request_tag = _tags.ITEM_DATA.cyclic(2 * number)
        self._answer_tag = _tags.ITEM_DATA.cyclic(2 * number + 1)
        rank, size = backend.place
        self._others = [r for r in range(size) if r != rank]
        self._serial = 0
        self._requests: dict[int, _Posted] = {}  # receives of the thread, by rank
        self._retry_at: dict[int, float] = {}
        self._answers: dict[int, _Posted] = {}  # headers, by owner
        # Sent by the thread, and by `fetch`.
        self._served: list[tuple[torch.Tensor, dist.Work]] = []
        self._asked: list[tuple[torch.Tensor, dist.Work]] = []
        self._data_of: Callable[[int], bytes | None] = lambda label: None
        self._ended = threading.Event()
        weakref.finalize(self, self._ended.set)

    # ---- the owner ----

    def serve(
        self, data_of: Callable[[int], bytes | None], is_busy: Callable[[], bool]
    ) -> None:
        """Begins to answer requests. Call it once.

        Args:
            data_of: data of the item with a label; None: this rank does not have it.
            is_busy: True if requests are probable, so that the thread looks often.
        """
        self._data_of = data_of
        thread = threading.Thread(
            target=_run,
            args=(weakref.ref(self), is_busy, self._ended),
            name="aikido-items",
            daemon=True,
        )
        thread.start()
        # A thread that is in C++ at the end of the process would abort the process.
        atexit.register(_close, weakref.ref(self._ended), thread)

    def close(self) -> None:
        """Ends the thread. Idempotent."""
        self._ended.set()

    def look(self) -> None:
        """Answers the requests that have arrived. Raises AbortedError at the end."""
        self._served = [sent for sent in self._served if not sent[1].is_completed()]
        now = time.monotonic()
        for rank in self._others:
            if now >= self._retry_at.get(rank, 0.0):
                try:
                    self._answer(rank)
                except AbortedError:
                    raise
                except AikidoError:  # silent, or lost
                    self._requests.pop(rank, None)
                    self._retry_at[rank] = now + _RETRY_S

    def _answer(self, rank: int) -> None:
        posted = self._requests.get(rank) or self._post(rank, self._request_tag)
        self._requests[rank] = posted
        while posted.work.is_completed():
            serial, label = posted.numbers()
            posted = self._requests[rank] = self._post(rank, self._request_tag)
            data = self._data_of(label)
            size = _ABSENT if data is None else len(data)
            header = torch.tensor([serial, size], dtype=torch.int64)
            self._send(header, rank, self._answer_tag, self._served)
            if data:
                whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
                self._send(whole, rank, self._answer_tag, self._served)

    # ---- the helper ----

    def fetch(self, owner: int, label: int, timeout_s: float) -> bytes | None:
        """Data of an item of `owner`; None: it does not come in time, or never."""
        self._serial += 1
        self._asked = [sent for sent in self._asked if not sent[1].is_completed()]
        end = time.monotonic() + timeout_s
        request = torch.tensor([self._serial, label], dtype=torch.int64)
        try:
            self._send(request, owner, self._request_tag, self._asked)
            while (header := self._header(owner, end)) is not None:
                serial, size = header
                data = self._data(owner, size)
                if serial == self._serial:
                    return data
        except AikidoError:
            self._answers.pop(owner, None)
        return None

    def _header(self, owner: int, end: float) -> tuple[int, int] | None:
        posted = self._answers.get(owner) or self._post(owner, self._answer_tag)
        self._answers[owner] = posted
        if not _wait(posted.work, end):
            return None
        del self._answers[owner]
        return posted.numbers()

    def _data(self, owner: int, size: int) -> bytes | None:
        if size <= 0:
            return None if size == _ABSENT else b""
        tensor = torch.empty(size, dtype=torch.uint8)
        work = self._backend.recv([tensor], owner, self._answer_tag)
        # The next header comes after these bytes, so this wait has the deadline of the
        # group's calls. A rank that is gone ends it at once.
        work.wait()
        return tensor.numpy().tobytes()

    def _post(self, rank: int, tag: int) -> _Posted:
        tensor = torch.empty(2, dtype=torch.int64)
        return _Posted(tensor, self._backend.recv([tensor], rank, tag))

    def _send(
        self,
        tensor: torch.Tensor,
        rank: int,
        tag: int,
        sent: list[tuple[torch.Tensor, dist.Work]],
    ) -> None:
        sent.append((tensor, self._backend.send([tensor], rank, tag)))


def _wait(work: dist.Work, end: float) -> bool:
    while not work.is_completed():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def _run(
    mail: "weakref.ref[ItemMail]", is_busy: Callable[[], bool], ended: threading.Event
) -> None:
    num_looks = 0
    while not ended.wait(_LOOK_S):
        num_looks += 1
        if num_looks % _IDLE_LOOKS and not is_busy():
            continue
        alive = mail()
        if alive is None:
            return
        try:
            alive.look()
        except AikidoError:
            return  # the group has ended
        del alive


def _close(ended: "weakref.ref[threading.Event]", thread: threading.Thread) -> None:
    if (event := ended()) is not None:
        event.set()
    thread.join(timeout=_CLOSE_S)
