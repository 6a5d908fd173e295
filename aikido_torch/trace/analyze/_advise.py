# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Advice of verdicts to the straggler policies, by a call or continuously."""

import atexit
import math
import threading
import time
import warnings
from collections.abc import Iterable

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from aikido_torch import _C
from aikido_torch._backend import (
    backend_of,
    backend_until_its_end,
    recorder_of_process,
    with_bucket_backends,
)
from aikido_torch.errors import AikidoError, ConfigError, RetryLaterError
from aikido_torch.trace.analyze._advice import Advice, Memory, advice_of
from aikido_torch.trace.analyze._attribute import attribute
from aikido_torch.trace.analyze._step_facts import facts_of
from aikido_torch.trace.analyze._verdict import Verdict
from aikido_torch.trace.record._dump import read
from aikido_torch.trace.record._trace_store import Board, collect, own_connection

__all__ = ["Following", "apply_advice", "auto_advise"]

_LOOK_S = 0.25
_LONGEST_S = 1e6
# The training may have paused, so a trace is requested again at once, this many times.
_TRIES = 3
# Ranks read a request within this time, unless a call holds the GIL for longer.
_HEARD_S = 1.0


def apply_advice(
    verdicts: Verdict | Iterable[Verdict], *, group: dist.ProcessGroup | None = None
) -> dict[int, Advice]:
    """Tells the straggler policies of a group why ranks are late, until the next call.

    Lags show which ranks are late, but not why. A rank with a slow link owns no shard
    from now on, without trials. A rank that only computes for longer keeps its shards,
    or gets them back, because the thread that serves shards does not wait for its
    program. For ranks that are not named, the lags decide again. Advice does not decide
    which ranks are in a result. Call it with the same verdicts on each rank; the first
    rank that owns shards acts on them.

    Args:
        verdicts: results of `attribute`, or `Summary.verdicts`; ranks are those of the
            job.
        group: an aikido group; None is the default group.

    Returns:
        The advice, by rank of the job, for members of the group only.

    Raises:
        ConfigError: there is no aikido group.
    """
    backend = backend_of(group)
    if isinstance(verdicts, Verdict):
        verdicts = [verdicts]
    return _tell(backend, advice_of(verdicts), group)


def _tell(
    backend: _C.AikidoBackend,
    said: dict[int, Advice],
    group: dist.ProcessGroup | None,
) -> dict[int, Advice]:
    # For each rank of the group, its rank in the job.
    members = [
        dist.get_global_rank(group, rank) if group is not None else rank
        for rank in range(backend.place[1])
    ]
    for each in with_bucket_backends(backend):
        for rank, member in enumerate(members):
            each.advise(rank, said.get(member, "none"))
    return {member: said[member] for member in members if member in said}


def auto_advise(
    *,
    every_s: float = 30.0,
    steps: int = 5,
    group: dist.ProcessGroup | None = None,
) -> "Following":
    """Traces a few steps repeatedly, and gives the policies the resulting advice.

    Call it on each rank after `watch`. A thread of the first rank of the group asks all
    ranks of the job for a trace of `steps` steps, and gives the advice to the members
    of the group (`apply_advice`). If the trace of a rank is missing, no advice is
    given. A slow link is remembered for ten verdicts that do not name it. Use it for
    one group of a job only, because only one trace can be made at a time.

    Args:
        every_s: seconds from one trace to the next.
        steps: steps of a trace, at least 3.
        group: an aikido group; None is the default group.

    Returns:
        A handle that ends it, and knows the last verdict.

    Raises:
        ConfigError: there is no aikido group, no rank has called `watch`, or a number
            is invalid.
    """
    backend = backend_of(group)
    if not isinstance(steps, int) or steps < 3:
        raise ConfigError(
            f"auto_advise: steps is {steps}; it takes 3 at least to see what is steady."
        )
    if not 0 < every_s <= _LONGEST_S:
        raise ConfigError(
            f"auto_advise: every_s is {every_s}; give seconds above 0, up to "
            f"{_LONGEST_S:g}."
        )
    board = Board(own_connection(_get_default_store()))
    board.num_ranks()  # raises if no rank listens
    return Following(
        board, recorder_of_process(), backend, group, every_s=every_s, steps=steps
    )


class Following:
    """Handle of `auto_advise`. For any thread."""

    def __init__(
        self,
        board: Board,
        recorder: _C.Recorder,
        backend: _C.AikidoBackend,
        group: dist.ProcessGroup | None,
        *,
        every_s: float,
        steps: int,
        look_s: float = _LOOK_S,
    ) -> None:
        """Starts the thread, which ends with the group of `backend`."""
        self._board = board
        self._recorder = recorder
        self._find_backend = backend_until_its_end(group)
        self._group = group
        self._name = group.group_name if group is not None else ""
        self._every_s = every_s
        self._steps = steps
        self._look_s = look_s
        self._memory = Memory()
        self._verdict: Verdict | None = None
        # Earlier verdicts belong to a former job, or to old steps.
        self._heard = board.num_verdicts(self._name)
        self._has_warned = False
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        if backend.place[0] == 0:
            self._threads.append(threading.Thread(target=self._lead, daemon=True))
        for thread in self._threads:
            thread.name = "aikido-follow"
            thread.start()
        atexit.register(self.stop)

    def __repr__(self) -> str:
        return f"Following(every_s={self._every_s}, verdict={self._verdict})"

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict; None before the first."""
        return self._verdict

    def stop(self) -> None:
        """Ends the thread and withdraws all advice. Idempotent."""
        atexit.unregister(self.stop)
        if self._ended.is_set():
            return
        self._ended.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=2.0)
        try:
            _tell(self._member(), {}, self._group)
        except (AikidoError, RuntimeError, ValueError):
            return  # the group has ended

    def _member(self) -> _C.AikidoBackend:
        """The backend of the group; raises ConfigError if the group has ended."""
        backend = self._find_backend()
        if backend is None:
            raise ConfigError("The group that was followed has ended.")
        return backend

    def _listen(self) -> None:
        try:
            board = Board(own_connection(_get_default_store()))
            while not self._ended.wait(self._look_s):
                last = board.num_verdicts(self._name)
                if last == self._heard:
                    continue
                told = board.verdict(self._name, last)
                if told is None:  # the counter is set a moment before the verdict
                    continue
                self._heard = last
                self._verdict = Verdict.of_json(told["verdict"])
                said = {int(rank): advice for rank, advice in told["said"].items()}
                _tell(self._member(), said, self._group)
        except (AikidoError, RuntimeError, ValueError):
            return  # the job or the group has ended

    def _lead(self) -> None:
        try:
            while not self._ended.wait(self._every_s):
                self._member()
                for _ in range(_TRIES):
                    if self._ask_once() or self._ended.is_set():
                        break
        except (AikidoError, RuntimeError):  # the job or the group has ended
            return

    def _ask_once(self) -> bool:
        """Traces once; returns True if a trace was received."""
        step, now = self._recorder.step, time.monotonic()
        if self._ended.wait(_HEARD_S):
            return False
        pace = (self._recorder.step - step) / (time.monotonic() - now)
        first = self._recorder.step + 1 + math.ceil(pace * _HEARD_S)
        last = first + self._steps - 1
        timeout_s = max(self._every_s, 60.0)
        try:
            found = collect(
                self._board, first, last, timeout_s=timeout_s, ended=self._ended
            )
        # The training pauses, or another caller records by hand.
        except RetryLaterError:
            return False
        dumps = [read(data, f"the dump of rank {r}") for r, data in found.dumps.items()]
        for rank in found.dumps:
            self._board.clear(found.number, rank)
        num_ranks = self._board.num_ranks()
        window = [
            each
            for each in facts_of(dumps)
            if first <= each.step <= last and len(each.ranks) == num_ranks
        ]
        # The rank without a trace may be the rank that all others wait for.
        if window:
            verdict = attribute(window)
            said = self._memory.add(verdict)
            self._board.say(self._name, {"verdict": verdict.to_json(), "said": said})
        elif not self._has_warned:
            self._has_warned = True
            notes = " ".join(found.notes)
            warnings.warn(f"trace.auto_advise has no verdict: {notes}", stacklevel=1)
        return True
