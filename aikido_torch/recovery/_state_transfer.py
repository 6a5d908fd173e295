# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Messages by which ranks copy states from each other, outside of all collectives.

The messages are tagged point-to-point messages on the group of the buckets. So they
have no number among the calls of the group, and no other rank takes part. All transfers
are posted and polled later; only `Fetch.result` waits, with a deadline.

```text
rank that is behind               rank that is asked
ASK(id, step)        --------->   noticed at its next step boundary
                     <---------   head (step, call, sizes), then outline and data
                     <---------   seal: all other ranks have the results that the
                                  state contains; sent by the progress thread
                                  while the asked rank trains on
or                   <---------   head (nothing): it is not ahead itself
FAILED(text)         --------->   to all: the state does not fit, or ranks differ
DIGEST(step, digest) --------->   to all, every `check_every` steps
SHORT(step, batches) --------->   to all, in a step of fewer batches
END(number, ..)      --------->   to all, after the last step
```

A patient ask is answered as soon as the asked rank is ahead, instead of with nothing.

A state without the seal must not be used. If a result has been received only by the
sender of the state, and that rank is lost, the other ranks may still decide on another
result.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch import _C, _tags
from aikido_torch._job_ranks import say_both
from aikido_torch.errors import (
    AikidoError,
    ConfigError,
    PeerLostError,
    RanksDifferError,
)
from aikido_torch.recovery._state import Snapshot

__all__ = ["Ask", "Copied", "Fetch", "StateTransfer"]

# Of a model: one tag for messages, the following tags for answers.
_TAGS_PER_MODEL = 0x100
_MESSAGE_BYTES = 2048
_MOST_TOGETHER = 8
_NOTHING = -1
_LOOK_S = 0.0005
# Assumed least transfer rate of the state, which extends the deadline after the head.
_BYTES_PER_S = 4 << 20
# Extra time for the seal, in case another rank is stopped meanwhile.
_SEAL_S = 30.0
_SEALED = 1  # Value of the seal that csrc/engine/group_returns.cpp sends.


@dataclass(frozen=True)
class Ask:
    """Request of `rank` for a state after more than `step` steps and at least `call`
    calls.
    """

    rank: int
    step: int
    call: int
    tag: int
    is_patient: bool = False


@dataclass(frozen=True)
class Copied:
    """A received state: that of `rank` after `step` steps, with collective `call`."""

    rank: int
    step: int
    call: int
    snapshot: Snapshot


class _Posted:
    """A tensor in transfer, in either direction."""

    def __init__(self, tensor: torch.Tensor, work: dist.Work) -> None:
        self.tensor = tensor
        self.work = work

    def is_over(self) -> bool:
        return self.work.is_completed()

    def arrived(self) -> bool:
        """Returns False if the transfer failed, for example because its sender was
        lost.

        Requires: is_over().
        """
        try:
            self.work.wait()
        except AikidoError:
            return False
        return True


class Fetch:
    """The answer to one request, as far as it has been received.

    Attributes:
        rank: the rank that was asked.
        step: steps that the asking rank had done when it asked.
    """

    def __init__(self, backend: Any, rank: int, tag: int, step: int) -> None:
        self._backend = backend
        self.rank = rank
        self.step = step
        self._tag = tag
        self._step = self._call = _NOTHING
        self._arrived: list[torch.Tensor] = []
        self._posted: list[_Posted] = []
        self._post(torch.zeros(4, dtype=torch.int64))
        self.has_head = False
        self.is_over = False
        self.num_bytes = 0

    def _post(self, tensor: torch.Tensor) -> None:
        work = self._backend.recv([tensor], self.rank, self._tag)
        self._posted.append(_Posted(tensor, work))

    def advance(self) -> bool:
        """Processes received tensors. Returns `is_over`."""
        while not self.is_over and self._posted[0].is_over():
            posted = self._posted.pop(0)
            if not posted.arrived():
                self.is_over = True
            elif not self.has_head:
                self._on_head(posted.tensor.tolist())
            else:
                self._arrived.append(posted.tensor)
                self.is_over = not self._posted
        return self.is_over

    def _on_head(self, head: list[int]) -> None:
        self.has_head = True
        self._step, self._call, *sizes = head
        if self._step == _NOTHING:
            self.is_over = True
            return
        self.num_bytes = sum(sizes)
        for size in sizes:
            self._post(torch.empty(size, dtype=torch.uint8))
        self._post(torch.zeros(1, dtype=torch.int64))

    def result(
        self,
        timeout_s: float,
        look: Callable[[], None],
        own_place: tuple[int, int] | None = None,
    ) -> Copied | None:
        """Waits for the copy.

        A rank that waits for this rank in a call would send its state only after that
        call. In this case the method returns at once, unless the answer has begun. This
        rule does not hold with `own_place`. It also returns if this rank is excluded
        from a group that cannot include it again.

        Args:
            timeout_s: seconds until the answer must begin.
            look: called repeatedly while waiting.
            own_place: steps and calls of this rank. A state of the same place needs no
                seal, because this rank has received all results in it as well.

        Returns:
            The copy, or None if there is none or it did not arrive in time; `is_over`
            tells which of both.
        """
        has_seen_head = False
        deadline = time.monotonic() + timeout_s
        while not self.advance() and time.monotonic() < deadline:
            if self._is_whole(own_place):
                break
            look()
            if self._backend.standing == "ended":
                break
            may_be_in_vain = own_place is None and not self.has_head
            if may_be_in_vain and self._backend.is_waited_for:
                break
            if self.has_head and not has_seen_head:
                has_seen_head = True
                deadline = time.monotonic() + timeout_s + _SEAL_S
                deadline += self.num_bytes / _BYTES_PER_S
            time.sleep(_LOOK_S)
        if self._is_whole(own_place):
            outline, data = self._arrived[:2]
            return Copied(self.rank, self._step, self._call, Snapshot(outline, data))
        if len(self._arrived) < 3:
            return None
        outline, data, seal = self._arrived
        if int(seal) != _SEALED:
            return None
        return Copied(self.rank, self._step, self._call, Snapshot(outline, data))

    def _is_whole(self, own_place: tuple[int, int] | None) -> bool:
        return (self._step, self._call) == own_place and len(self._arrived) >= 2


def check_reachable(backend: _C.AikidoBackend) -> None:
    """Checks that another rank is left that could send its state.

    Raises:
        PeerLostError: no such rank is left, or too few ranks are left to include this
            rank again.
    """
    own, size = backend.place
    gone = backend.gone
    if backend.standing == "ended" and gone:
        lost = ", ".join(f"rank {rank}" for rank in gone)
        text = (
            f"catch_up: rank {own} was left out while it was late, and cannot return: "
            f"{lost} left the group or failed, and too few ranks remain to include it "
            "again; load a checkpoint and start again."
        )
        raise PeerLostError(say_both(text, backend), rank=gone[0])
    if len(gone) == size - 1:
        text = (
            f"catch_up: rank {own} was left out while it was late and needs the state "
            f"of another rank, but all {len(gone)} others have left or are lost; load "
            "a checkpoint and start again."
        )
        raise PeerLostError(say_both(text, backend), rank=gone[0])


class StateTransfer:
    """One rank's end of the messages. For the training thread only.

    Args:
        backend: backend of the group.
        number: equal on all ranks, and different for each exchange on a group.

    Attributes:
        asks: requests that `answer` has not answered.
        digests: digests received since `take_digests`.
        failure: the failure of the training that another rank or this one has reported.
        num_served: requests that `answer` has answered with a state.
    """

    def __init__(self, backend: _C.AikidoBackend, *, number: int) -> None:
        self._backend: Any = backend
        self._tag = _tags.STATE_TRANSFER.cyclic(number * _TAGS_PER_MODEL)
        self._num_asks = 0
        self._sent: list[_Posted] = []
        self._left: list[Fetch] = []
        self.digests: list[tuple[int, int, str]] = []
        self._shorts: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int, int, str]] = []
        self.asks: list[Ask] = []
        self.num_served = 0
        self.failure: AikidoError | None = None
        # Several receives are posted, so that several messages can be received at once.
        self._incoming = [self._listen() for _ in range(_MOST_TOGETHER)]

    def _listen(self) -> _Posted:
        tensor = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
        return _Posted(tensor, self._backend.recv_anysource([tensor], self._tag))

    @property
    def awaited(self) -> list[dist.Work]:
        """Receives in progress; when one completes, `look` has something to process."""
        return [self._incoming[0].work]

    @property
    def has_news(self) -> bool:
        """True if a received message was not processed or answered yet."""
        return bool(self.asks or self.digests or self._shorts or self.failure)

    def look(self) -> bool:
        """Processes the received messages. Never blocks.

        Returns:
            True if there are short steps to take, or a failure.
        """
        while self._incoming[0].is_over():
            posted = self._incoming.pop(0)
            has_arrived = posted.arrived()
            if has_arrived:
                self._take(posted.tensor.numpy().tobytes())
            self._incoming.append(self._listen())
            if not has_arrived:
                break  # A rank is lost: the next receive would fail as well.
        if self._sent:
            self._sent = [posted for posted in self._sent if not posted.is_over()]
        if self._left:
            self._left = [fetch for fetch in self._left if not fetch.advance()]
        return bool(self._shorts or self.failure)

    def _take(self, message: bytes) -> None:
        fields = json.loads(message.rstrip(b"\0"))
        if "failure" in fields:
            self.failure = _failure_of(**fields)
        elif "end" in fields:
            keys = ("end", "rank", "step", "digest")
            self._ends.append(tuple(fields[key] for key in keys))
        elif "short" in fields:
            self._shorts.append((fields["step"], fields["short"]))
        elif "digest" in fields:
            self.digests.append((fields["rank"], fields["step"], fields["digest"]))
        else:
            self.asks.append(Ask(**fields))

    def _send(self, tensor: torch.Tensor, rank: int, tag: int) -> None:
        try:
            work = self._backend.send([tensor], rank, tag)
        except AikidoError:
            return  # The next call of the training raises the reason.
        self._sent.append(_Posted(tensor, work))

    def _tell(self, rank: int, fields: dict[str, Any]) -> None:
        self._send(_message(fields), rank, self._tag)

    def _tell_others(self, fields: dict[str, Any]) -> None:
        own, size = self._backend.place
        message = _message(fields)
        for rank in range(size):
            if rank != own:
                self._send(message, rank, self._tag)

    def tell_digest(self, step: int, digest: str) -> None:
        """Sends a digest to all other ranks, for their `take_digests`. Never blocks."""
        own, _ = self._backend.place
        self._tell_others({"rank": own, "step": step, "digest": digest})

    def take_digests(self) -> list[tuple[int, int, str]]:
        """(rank, step, digest) of the digests received since the last call."""
        taken, self.digests = self.digests, []
        return taken

    def say_both(self, text: str) -> str:
        """`text` with the ranks of the job, if the group is not the whole job."""
        return say_both(text, self._backend)

    def tell_short(self, step: int, batches: int) -> None:
        """Sends the size of a short step to all others, for `take_shorts`. Never
        blocks.
        """
        self._tell_others({"step": step, "short": batches})

    def take_shorts(self) -> list[tuple[int, int]]:
        """(step, batches) of the short steps received since the last call."""
        taken, self._shorts = self._shorts, []
        return taken

    def tell_end(self, number: int, step: int, digest: str) -> None:
        """Sends the last digest to all other ranks, for their `take_ends`. Never
        blocks.
        """
        own, _ = self._backend.place
        fields = {"rank": own, "step": step, "digest": digest, "end": number}
        self._tell_others(fields)

    def take_ends(self, number: int) -> list[tuple[int, int, str]]:
        """(rank, step, digest) of the ends with this number, each returned once."""
        taken = [end for end in self._ends if end[0] == number]
        self._ends = [end for end in self._ends if end[0] > number]
        return [(rank, step, digest) for _, rank, step, digest in taken]

    def ask(self, rank: int, step: int, *, is_patient: bool = False) -> Fetch:
        """Begins to copy the state of `rank`, of more than `step` steps.

        The state also contains the results of all calls that this rank has made.

        Args:
            rank: the rank to ask.
            step: steps that this rank has done.
            is_patient: True if the answer may wait until the asked rank is ahead.
        """
        own, _ = self._backend.place
        tag = self._tag + 1 + self._num_asks % (_TAGS_PER_MODEL - 1)
        self._num_asks += 1
        fetch = Fetch(self._backend, rank, tag, step)
        asked = Ask(own, step, self._backend.num_calls, tag, is_patient)
        self._tell(rank, asdict(asked))
        return fetch

    def leave(self, fetch: Fetch) -> None:
        """Discards the tensors of `fetch` that are still to be received."""
        if not fetch.is_over:
            self._left.append(fetch)

    def answer(self, step: int, take: Callable[[], Snapshot] | None) -> list[Ask]:
        """Answers all requests; the last request of each rank gets a state if possible.

        Args:
            step: number of steps after which `take` takes the state.
            take: called once if any rank gets a state; None if this rank must not send
                one.

        Returns:
            The requests that were answered with a state.
        """
        call = self._backend.num_calls
        later = [
            ask
            for ask in self.asks
            if ask.is_patient and (take is None or ask.step >= step or ask.call > call)
        ]
        asks, self.asks = [ask for ask in self.asks if ask not in later], later
        newest = {ask.rank: ask for ask in asks}
        given = [
            ask
            for ask in newest.values()
            if take is not None and ask.step < step and ask.call <= call
        ]
        snapshot = take() if given and take is not None else None
        for ask in asks:
            if snapshot is None or ask not in given:
                self._send(torch.tensor([_NOTHING, 0, 0, 0]), ask.rank, ask.tag)
                continue
            outline, data = snapshot.outline, snapshot.data
            head = torch.tensor([step, call, outline.numel(), data.numel()])
            for tensor in (head, outline, data):
                self._send(tensor, ask.rank, ask.tag)
            # The progress thread sends the seal. This thread's next call may wait for
            # the rank that asks.
            self._backend.seal(call, ask.rank, ask.tag)
        self.num_served += len(given)
        return given

    def tell_failure(
        self, error: ConfigError | RanksDifferError, timeout_s: float
    ) -> None:
        """Makes all other ranks raise `error` at their next step boundary.

        Args:
            error: the error to send.
            timeout_s: seconds to wait until the messages have been sent.
        """
        fields: dict[str, Any] = {"failure": str(error)}
        if isinstance(error, RanksDifferError):
            fields |= {"rank": error.rank, "step": error.step, "tensor": error.tensor}
        while len(json.dumps(fields)) > _MESSAGE_BYTES:
            key = max(("failure", "tensor"), key=lambda k: len(fields.get(k) or ""))
            fields[key] = fields[key][: len(fields[key]) // 2] + " ..."
        self._tell_others(fields)
        deadline = time.monotonic() + timeout_s
        while self._sent and time.monotonic() < deadline:
            self.look()
            time.sleep(_LOOK_S)


def _failure_of(
    failure: str,
    rank: int | None = None,
    step: int | None = None,
    tensor: str | None = None,
) -> AikidoError:
    """The error that another rank has sent by `tell_failure`."""
    if step is None:
        return ConfigError(failure)
    return RanksDifferError(failure, rank=rank, step=step, tensor=tensor)


def _message(fields: dict[str, Any]) -> torch.Tensor:
    text = json.dumps(fields).encode()
    tensor = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
    tensor[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return tensor
