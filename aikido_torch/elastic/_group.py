# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Calls of a session on its group: change of members, commit of a step, state copies.

All functions are for the training thread and use the default group. Each call is strict
and ends with an error when a member dies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import aikido_torch._calls as calls
from aikido_torch._backend import backend_of
from aikido_torch._members import reconfigure, reconfigure_handle
from aikido_torch.elastic._roster import Roster
from aikido_torch.errors import ConfigError
from aikido_torch.recovery._state import Snapshot

__all__ = [
    "Commit",
    "begin_alone",
    "commit",
    "compare_steps",
    "connect",
    "lost_ranks",
    "receive",
    "send",
    "share_text",
]

_STATE_TAG = 7


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


def share_text(text: str | None, source: int) -> str:
    """The text of the member with rank `source`, on all members."""
    data = torch.frombuffer(bytearray((text or "").encode() + b"\n"), dtype=torch.uint8)
    size = torch.tensor([len(data)])
    dist.broadcast(size, source)
    if dist.get_rank() != source:
        data = torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(data, source)
    return data.numpy().tobytes().decode()[:-1]


def send(snapshot: Snapshot, targets: Sequence[int]) -> None:
    """Sends a state to these ranks."""
    head = torch.tensor([len(snapshot.outline), len(snapshot.data)])
    works = [
        dist.isend(part, rank, tag=_STATE_TAG)
        for rank in targets
        for part in (head, snapshot.outline, snapshot.data)
    ]
    for work in works:
        if work is not None:
            work.wait()


def receive(source: int) -> Snapshot:
    """Receives the state that `source` sends to this rank."""
    head = torch.empty(2, dtype=torch.int64)
    dist.recv(head, source, tag=_STATE_TAG)
    outline, data = (torch.empty(n, dtype=torch.uint8) for n in head.tolist())
    dist.recv(outline, source, tag=_STATE_TAG)
    dist.recv(data, source, tag=_STATE_TAG)
    return Snapshot(outline, data)


def lost_ranks() -> list[int]:
    """Ranks whose connection to this member broke."""
    return list(backend_of(None).gone)
