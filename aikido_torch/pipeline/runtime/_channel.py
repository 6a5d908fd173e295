# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Connections between the ranks of a pipeline."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.distributed as dist

from aikido_torch._calls import all_reduce
from aikido_torch.errors import AikidoError
from aikido_torch.straggler import Policy

__all__ = ["Channel", "GroupChannel", "Pending"]


class Pending(Protocol):
    """An operation in progress."""

    def is_done(self) -> bool:
        """True if it has ended, successfully or not."""

    def wait(self) -> None:
        """Waits until it has ended; raises its error."""

    def when_done(self, call: Callable[[], None]) -> None:
        """Calls `call` once after the end, successful or not, on any thread."""


class Channel(Protocol):
    """Transfers between ranks.

    No method blocks. A buffer must not change until its operation has ended.
    """

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Sends a buffer of bytes."""

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receives a message with exactly the size of the buffer."""

    def reduce(self, stage: int, tensor: torch.Tensor) -> Pending:
        """Adds up over the replicas of a stage, in place; replicas must call in equal
        order.
        """


class _Work:
    """A work of torch as a Pending."""

    __slots__ = ("_work",)

    def __init__(self, work: dist.Work) -> None:
        self._work = work

    def is_done(self) -> bool:
        return self._work.is_completed()

    def wait(self) -> None:
        self._work.wait()

    def when_done(self, call: Callable[[], None]) -> None:
        self._work.get_future().add_done_callback(lambda _: call())


class _Replicas:
    """The replicas of a stage, and their group.

    Args:
        stage: number of the stage.
        group: process group of the replicas.
        ranks: for each rank of the group, its rank in the pipeline.
    """

    def __init__(self, stage: int, group: dist.ProcessGroup, ranks: list[int]) -> None:
        self.group = group
        self._stage, self._ranks = stage, ranks

    @contextmanager
    def named(self) -> Iterator[None]:
        """Context in which errors name a rank of the pipeline instead of a rank of the
        group.
        """
        try:
            yield
        except AikidoError as error:
            if error.rank is None:
                raise
            numbers = ", ".join(map(str, range(len(self._ranks))))
            ranks = ", ".join(map(str, self._ranks))
            raise type(error)(
                f"{error} (in the group of the replicas of stage {self._stage}, whose "
                f"ranks {numbers} are ranks {ranks} of the pipeline)",
                rank=self._ranks[error.rank],
                operation=error.operation,
                sequence_number=error.sequence_number,
            ) from error


class _Sum(_Work):
    """A sum over replicas as a Pending."""

    __slots__ = ("_replicas",)

    def __init__(self, work: dist.Work, replicas: _Replicas) -> None:
        super().__init__(work)
        self._replicas = replicas

    def wait(self) -> None:
        with self._replicas.named():
            super().wait()


class GroupChannel:
    """Channel over process groups.

    Args:
        group: group for messages; its ranks are those of the schedule.
        replicas: groups of the replicas, for each stage of this rank that has several.
        policy: policy for late ranks in sums; None waits for all ranks.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        replicas: Mapping[int, dist.ProcessGroup],
        policy: Policy | None = None,
    ) -> None:
        self._group = group
        self._policy = policy
        self._replicas = {
            stage: _Replicas(
                stage,
                of,
                [
                    dist.get_group_rank(group, r)
                    for r in dist.get_process_group_ranks(of)
                ],
            )
            for stage, of in replicas.items()
        }

    def send(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Sends a buffer of bytes."""
        return _Work(self._group.send([buffer], peer, tag))

    def receive(self, peer: int, tag: int, buffer: torch.Tensor) -> Pending:
        """Receives a message with exactly the size of the buffer."""
        return _Work(self._group.recv([buffer], peer, tag))

    def reduce(self, stage: int, tensor: torch.Tensor) -> Pending:
        """Adds up over the replicas of a stage, in place."""
        replicas = self._replicas[stage]
        with replicas.named():
            if self._policy is None:
                work = dist.all_reduce(tensor, group=replicas.group, async_op=True)
            else:
                work = all_reduce(
                    tensor, group=replicas.group, policy=self._policy, async_op=True
                )
        return _Sum(work, replicas)
