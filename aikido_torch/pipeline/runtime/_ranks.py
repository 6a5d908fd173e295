# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Process groups of a pipeline, and facts on which its ranks agree before a run.

The names of the groups follow Note [names of groups] in `_own_groups`.
"""

import contextlib
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from aikido_torch import _C
from aikido_torch._backend import backend_of
from aikido_torch._own_groups import counted_from
from aikido_torch.errors import AbortedError, AikidoError, ConfigError
from aikido_torch.options import Options
from aikido_torch.pipeline.plan._schedule import Schedule

__all__ = ["Ranks"]

_Value = TypeVar("_Value")

_MOST_UNASKED = 16 << 20  # largest value of the setting


class Ranks:
    """The ranks of one schedule, as seen by this rank. All ranks construct it together.

    Args:
        schedule: the schedule.
        group: group with the ranks of the schedule; None is the default group.

    Raises:
        ConfigError: there is no group, or it has another number of ranks, or the
            schedule differs between ranks.
    """

    def __init__(self, schedule: Schedule, group: dist.ProcessGroup | None) -> None:
        if group is None:
            group = dist.group.WORLD
        if group is None:
            raise ConfigError(
                "There is no process group yet; call init_process_group('aikido') "
                "first."
            )
        self._group = group
        self._schedule = schedule
        self.rank = group.rank()
        size = len(schedule.ranks)
        if group.size() != size:
            raise ConfigError(
                f"the schedule is for {size} ranks ({self._all_stages()}), and the "
                f"group has {group.size()}; start as many as the schedule has."
            )
        for other, text in enumerate(self.together(schedule.text)):
            if text != schedule.text():
                raise ConfigError(
                    f"rank {other} has another schedule than rank {self.rank}; give "
                    "all ranks the same."
                )
        self._salt = self.together(lambda: uuid.uuid4().int)[0]
        self.messages = self._new_group(list(range(size)), is_of_messages=True)
        self.replicas: dict[int, dist.ProcessGroup] = {}
        for stage, ranks in enumerate(schedule.stages):
            # If the group is the default group, ranks outside of the new group must
            # take part in making it.
            if len(ranks) > 1 and (self.rank in ranks or self._is_default):
                made = self._new_group(ranks)
                if self.rank in ranks:
                    self.replicas[stage] = made

    @property
    def _is_default(self) -> bool:
        return self._group is dist.group.WORLD

    @property
    def is_aikido(self) -> bool:
        """True if the group is an aikido group: a lost rank ends receives from it, and
        the group can be aborted.
        """
        return _aikido(self._group) is not None

    def name_of(self, rank: int) -> str:
        """Name of a rank in error texts: 'stage 1 (rank 2)'."""
        own = [str(s) for s, ranks in enumerate(self._schedule.stages) if rank in ranks]
        stages = f"stage {own[0]}" if len(own) == 1 else f"stages {', '.join(own)}"
        return f"{stages} (rank {rank})"

    def replicas_of(self, rank: int) -> list[int]:
        """The other ranks that have all stages of that rank."""
        stages = [ranks for ranks in self._schedule.stages if rank in ranks]
        shared = set.intersection(*map(set, stages)) if stages else set()
        return sorted(shared - {rank})

    def together(self, call: Callable[[], _Value]) -> list[_Value]:
        """The results of a function on each rank; all ranks call it together.

        Raises:
            ConfigError: the function raised it on a rank; then all ranks raise it with
                that text.
            AbortedError: the function raised another error on another rank, which is
                named.
        """
        mine: tuple[_Value | None, AikidoError | None]
        raised: Exception | None = None
        try:
            mine = call(), None
        except ConfigError as error:
            mine = None, ConfigError(str(error))
        except Exception as error:
            raised = error
            what = f"{type(error).__name__}: {error}"
            text = f"{self.name_of(self.rank)} has failed: {what}"
            mine = None, AbortedError(text, rank=self.rank, operation="pipeline")
        found: list[Any] = [None] * self._group.size()
        dist.all_gather_object(found, mine, group=self._group)
        if raised is not None:
            raise raised
        for _, trouble in found:
            if trouble is not None:
                raise trouble
        return [value for value, _ in found]

    def gather(self, value: _Value) -> list[_Value]:
        """The values of all ranks, without interference with messages in progress.

        Raises:
            PeerLostError, AbortedError: a rank is lost, or the pipeline has ended.
        """
        found: list[Any] = [None] * self._group.size()
        dist.all_gather_object(found, value, group=self.messages)
        return found

    def make_equal(self, stage: int, module: nn.Module) -> None:
        """Copies parameters and buffers of the first replica to all replicas."""
        group = self.replicas.get(stage)
        if group is None:
            return
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                held = tensor.detach().contiguous()
                dist.broadcast(held, group=group, group_src=0)
                tensor.copy_(held)

    def from_first(self, stage: int, having: list[int], value: object) -> object:
        """The value of the first rank that has it, on all replicas of the stage.

        Args:
            stage: number of the stage.
            having: ranks with the value, in order.
            value: the value of this rank.
        """
        group = self.replicas[stage]
        found = [value]
        source = sorted(self._schedule.stages[stage]).index(having[0])
        dist.broadcast_object_list(found, group=group, group_src=source)
        return found[0]

    def close(self) -> None:
        """Ends the groups that this object made."""
        for group in (*self.replicas.values(), self.messages):
            dist.destroy_process_group(group)

    def _new_group(
        self, ranks: list[int], *, is_of_messages: bool = False
    ) -> dist.ProcessGroup:
        members = [dist.get_global_rank(self._group, rank) for rank in ranks]
        backend = _aikido(self._group)
        is_local = not self._is_default
        # Several groups may have the same members, with different purposes.
        name = self._salt + is_of_messages
        with counted_from(name) if is_local else contextlib.nullcontext():
            made = dist.new_group(
                members,
                timeout=backend.call_timeout if backend is not None else None,
                backend=dist.get_backend(self._group),
                pg_options=_unasked() if is_of_messages and backend else None,
                use_local_synchronization=is_local,
            )
        assert isinstance(made, dist.ProcessGroup) or self.rank not in ranks
        return made  # type: ignore[return-value]

    def _all_stages(self) -> str:
        counts = [len(ranks) for ranks in self._schedule.stages]
        return f"stages with {', '.join(map(str, counts))}"


def _unasked() -> Options:
    """Options that send messages eagerly, without waiting for their receives.

    Waiting would cost a round trip for each message, behind all data that waits in a
    slow link. The schedule bounds the number of messages in progress, and
    `transport.window_bytes` bounds the bytes that wait at a rank. A value of
    `transport.eager_bytes` that the user has set takes precedence.
    """
    (eager,) = (s for s in Options().resolve() if s.name == "transport.eager_bytes")
    is_set = eager.source != "default"
    return Options(transport_eager_bytes=None if is_set else _MOST_UNASKED)


def _aikido(group: dist.ProcessGroup) -> _C.AikidoBackend | None:
    try:
        return backend_of(group)
    except ConfigError:
        return None
