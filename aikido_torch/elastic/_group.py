# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls of a session on its group: change of members, commit of a step, state copies.

All functions are for the training thread and use the default group. Each call is strict
and ends with an error when a member dies.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import aikido_torch._calls as calls
from aikido_torch import _tags
from aikido_torch._backend import backend_of
from aikido_torch._members import reconfigure, reconfigure_handle
from aikido_torch.elastic._roster import Roster
from aikido_torch.errors import ConfigError, PeerLostError
from aikido_torch.recovery._state import Snapshot

__all__ = [
    "Commit",
    "Watched",
    "begin_alone",
    "commit",
    "compare_steps",
    "connect",
    "lost_ranks",
    "receive",
    "send",
    "share_text",
]

_POLL_S = 0.0002

# Tells that another member has announced a death.
Alarm = Callable[[], bool]


def _never() -> bool:
    return False


class Watched:
    """A call that also ends if another member announces a death.

    A call between two members does not fail by the death of a third member. But the
    other member of the call may have left it because of that death.

    Args:
        work: the call; None: it has ended.
        alarm: polled while the call runs.
    """

    def __init__(self, work: dist.Work | None, alarm: Alarm) -> None:
        self._work, self._alarm = work, alarm

    def wait(self) -> None:
        """Waits for the end of the call.

        Raises:
            PeerLostError: another member has announced a death.
            AikidoError: the call has failed.
        """
        if self._work is None:
            return
        while not self._work.is_completed():
            if self._alarm():
                raise PeerLostError("elastic: another member has announced a death.")
            time.sleep(_POLL_S)
        self._work.wait()


@dataclass(frozen=True)
class Commit:
    """Result of the commit of a step, equal on all members.

    Attributes:
        num_waiting: processes that wait for admission at the next boundary.
        leaving: ranks of members with an eviction notice.
    """

    num_waiting: int
    leaving: tuple[int, ...]


def begin_alone(timeout_s: float) -> str:
    """Makes the default group with this process alone, and returns its handle.

    Raises:
        ConfigError: the process has a default group already.
    """
    if dist.is_initialized():
        raise ConfigError(
            "elastic.join: this process has a process group already, and join makes "
            "the group itself; remove init_process_group."
        )
    dist.init_process_group(
        "aikido",
        store=HashStore(),
        rank=0,
        world_size=1,
        timeout=timedelta(seconds=timeout_s),
    )
    return reconfigure_handle()


def connect(roster: Roster, timeout_s: float) -> None:
    """Connects the group to the members of a roster, which all call this."""
    reconfigure(roster.epoch, roster.handles, timeout=timedelta(seconds=timeout_s))


def commit(step: int, num_waiting: int, *, is_leaving: bool) -> Commit:
    """Commits a step on all members, with one small message.

    Args:
        step: number of the step; it must be equal on all members.
        num_waiting: processes that wait for admission; 0 except on the leader.
        is_leaving: this member has an eviction notice.

    Raises:
        AikidoError: the step is not committed on this member.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    facts = torch.zeros(2 + size, dtype=torch.int64)
    facts[0], facts[1], facts[2 + rank] = step, num_waiting, int(is_leaving)
    calls.all_reduce(facts)
    values = facts.tolist()
    if values[0] != step * size:
        raise ConfigError(
            f"elastic: this member is in step {step}, but the mean of all members is "
            f"{values[0] / size}; call the same steps on all members."
        )
    leaving = tuple(r for r, is_set in enumerate(values[2:]) if is_set)
    return Commit(values[1], leaving)


def compare_steps(step: int, *, has_state: bool) -> list[int]:
    """Number of steps in the state of each rank; -1 for a rank without a state."""
    rank, size = dist.get_rank(), dist.get_world_size()
    steps = torch.zeros(size, dtype=torch.int64)
    steps[rank] = step if has_state else -1
    calls.all_reduce(steps)
    found: list[int] = steps.tolist()
    return found


def share_text(text: str | None, source: int, alarm: Alarm = _never) -> str:
    """The text of the member with rank `source`, on all members."""
    data = torch.frombuffer(bytearray((text or "").encode() + b"\n"), dtype=torch.uint8)
    size = torch.tensor([len(data)])
    Watched(dist.broadcast(size, source, async_op=True), alarm).wait()
    if dist.get_rank() != source:
        data = torch.empty(int(size), dtype=torch.uint8)
    Watched(dist.broadcast(data, source, async_op=True), alarm).wait()
    return data.numpy().tobytes().decode()[:-1]


def send(snapshot: Snapshot, targets: Sequence[int], alarm: Alarm = _never) -> None:
    """Sends the state of the training to these ranks."""
    for work in [w for rank in targets for w in begin_send(snapshot, rank)]:
        Watched(work, alarm).wait()


def begin_send(snapshot: Snapshot, target: int, shard: int = -1) -> list[dist.Work]:
    """Starts to send a state to a rank.

    Args:
        snapshot: must not change until the returned works have ended.
        target: rank of the receiver.
        shard: number of the shard; -1: the state of the training.
    """
    head = torch.tensor([len(snapshot.outline), len(snapshot.data)])
    works = [
        dist.isend(part, target, tag=_tags.SHARDS.cyclic(shard + 1))
        for part in (head, snapshot.outline, snapshot.data)
        if part.numel()
    ]
    return [work for work in works if work is not None]


def receive(source: int, shard: int = -1, alarm: Alarm = _never) -> Snapshot:
    """Receives the state that `source` sends to this rank with `begin_send`."""
    tag = _tags.SHARDS.cyclic(shard + 1)
    head = torch.empty(2, dtype=torch.int64)
    Watched(dist.irecv(head, source, tag=tag), alarm).wait()
    outline, data = (torch.empty(n, dtype=torch.uint8) for n in head.tolist())
    for part in (outline, data):
        if part.numel():
            Watched(dist.irecv(part, source, tag=tag), alarm).wait()
    return Snapshot(outline, data)


def lost_ranks() -> list[int]:
    """Ranks whose connection to this member broke."""
    return list(backend_of(None).gone)
