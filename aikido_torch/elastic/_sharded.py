# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Optimizer whose state is divided into shards with one owner each.

```
gradients of shard  --reduce-->  owner: step  --broadcast-->  parameters on all members
                                      |
                                      +--state--> reliable member with the copy
```

The step is committed after the last arrow. Before it, each member keeps its parameters
and states, so that a failed step can be undone.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch.elastic import _group
from aikido_torch.elastic._placement import Placement, place, transfers
from aikido_torch.elastic._roster import JobEndsError, Roster
from aikido_torch.elastic._stages import Stage, Thresholds, next_stage, trains
from aikido_torch.errors import ConfigError
from aikido_torch.recovery._state import Snapshot, bytes_of, pickled, unpickled

__all__ = ["ShardedOptimizer", "Shards"]


class ShardedOptimizer(torch.optim.Optimizer):
    """Optimizer for `elastic.join` whose members hold the state of their shards only.

    Each owner receives the sum of its gradients, steps, and sends its parameters. The
    owners follow from the ratio of transient to reliable members; see `Stage`.

    Args:
        kind: class of the optimizer, such as `torch.optim.AdamW`. It must treat each
            parameter by itself.
        model: its parameters are divided; all must need a gradient.
        num_shards: number of shards, fixed for the job. More shards than owners balance
            better.
        thresholds: ratios at which the stage changes; None: the defaults.
        options: further arguments of `kind`, such as `lr`.

    Raises:
        ConfigError: an argument is wrong.
    """

    def __init__(
        self,
        kind: Callable[..., torch.optim.Optimizer],
        model: torch.nn.Module,
        *,
        num_shards: int = 16,
        thresholds: Thresholds | None = None,
        **options: Any,
    ) -> None:
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise ConfigError("ShardedOptimizer: the model has no parameter to train.")
        if type(num_shards) is not int or num_shards < 1:
            raise ConfigError(
                f"ShardedOptimizer: num_shards is {num_shards!r}; it takes a whole "
                "number from 1 on."
            )
        self.kind = getattr(kind, "__name__", str(kind))
        self.thresholds = thresholds or Thresholds()
        self._inner = kind(parameters, **options)
        super().__init__(self._inner.param_groups, self._inner.defaults)
        self.state = self._inner.state
        self.shards = in_shards(parameters, min(num_shards, len(parameters)))

    def step(self, closure: Any = None) -> Any:
        """Steps the parameters that have a gradient: those of the own shards."""
        return self._inner.step(closure)


def in_shards(
    parameters: list[torch.nn.Parameter], num_shards: int
) -> list[list[torch.nn.Parameter]]:
    """Whole parameters in shards of similar size; equal on all members.

    A shard has parameters of one dtype and device only, so that there may be more
    shards than asked for.
    """
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
    for p in parameters:
        kinds.setdefault((p.dtype, p.device), []).append(p)
    total = sum(p.nbytes for p in parameters)
    found: list[list[torch.nn.Parameter]] = []
    for each in kinds.values():
        part = sum(p.nbytes for p in each) / total
        number = min(len(each), max(1, round(num_shards * part)))
        shards: list[list[torch.nn.Parameter]] = [[] for _ in range(number)]
        loads = [0] * number
        for p in sorted(each, key=lambda p: -p.nbytes):  # the largest ones first
            lightest = loads.index(min(loads))
            shards[lightest].append(p)
            loads[lightest] += p.nbytes
        found += shards
    return found


class Shards:
    """Shards of a job on one member. For the training thread only.

    Args:
        optimizer: optimizer of the job.
        name: name of this member.
        alarm: tells that another member has announced a death.

    Attributes:
        stage: stage of the job.
        placement: owners and copies; None before the first roster.
    """

    def __init__(
        self,
        optimizer: ShardedOptimizer,
        name: str,
        alarm: Callable[[], bool] = lambda: False,
    ) -> None:
        self._alarm = alarm
        self.stage = Stage.RELIABLE_OWNERS
        self.placement: Placement | None = None
        self._optimizer, self._name = optimizer, name
        self._ranks: dict[str, int] = {name: 0}
        self._flats = [
            torch.empty(sum(p.numel() for p in s), dtype=s[0].dtype, device=s[0].device)
            for s in optimizer.shards
        ]

    @property
    def owned(self) -> tuple[int, ...]:
        """Shards that this member owns."""
        return self._placed.owned_by(self._name)

    @property
    def held(self) -> set[int]:
        """Shards whose state this member has, as owner or as copy."""
        return {*self.owned, *self._placed.copied_by(self._name)}

    def trainers(self, roster: Roster) -> list[str]:
        """Names of the members that compute gradients, in rank order."""
        return [str(m.number) for m in roster.members if trains(self.stage, m.role)]

    def reduce(self, shard: int, flat: torch.Tensor) -> Any:
        """Starts the sum of the gradients of a shard on its owner."""
        owner = self._ranks[self._placed.owners[shard]]
        return _group.Watched(dist.reduce(flat, owner, async_op=True), self._alarm)

    # ---- a step ----

    def keep(self) -> Callable[[], None]:
        """Function that restores all parameters and the held states of now."""
        parameters = [
            (p, p.detach().clone()) for shard in self._optimizer.shards for p in shard
        ]
        states = {shard: self._pack(shard) for shard in self.held}

        def undo() -> None:
            with torch.no_grad():
                for p, value in parameters:
                    p.copy_(value)
            for shard, snapshot in states.items():
                self._unpack(shard, snapshot)

        return undo

    def exchange(self) -> None:
        """Sends parameters to all members, and states to the copies, after a step.

        Raises:
            AikidoError: a member died; the step must be undone.
        """
        placed = self._placed
        works: list[Any] = []
        for shard, owner in enumerate(placed.owners):
            flat, parameters = self._flats[shard], self._optimizer.shards[shard]
            if owner == self._name:
                torch.cat([p.detach().reshape(-1) for p in parameters], out=flat)
            work = dist.broadcast(flat, self._ranks[owner], async_op=True)
            works.append(_group.Watched(work, self._alarm))
        self._move(
            [(s, placed.owners[s], copy) for s, copy in enumerate(placed.copies)]
        )
        for shard, work in enumerate(works):
            work.wait()
            flat, parameters = self._flats[shard], self._optimizer.shards[shard]
            if placed.owners[shard] == self._name:
                continue
            with torch.no_grad():
                pieces = torch.split(flat, [p.numel() for p in parameters])
                for p, piece in zip(parameters, pieces, strict=True):
                    p.copy_(piece.view(p.shape))

    # ---- a change of the members ----

    def follow(self, roster: Roster) -> None:
        """Moves states to the owners and copies of a roster.

        Raises:
            JobEndsError: the state of a shard is lost with its owner.
            AikidoError: a member died in the meantime.
        """
        names = [str(m.number) for m in roster.members]
        roles = {str(m.number): m.role for m in roster.members}
        reliable = sum(m.is_reliable for m in roster.members)
        self.stage = next_stage(
            self.stage,
            reliable=reliable,
            transient=len(names) - reliable,
            thresholds=self._optimizer.thresholds,
        ).stage
        self._ranks = {name: rank for rank, name in enumerate(names)}
        previous, number = self.placement, len(self._flats)
        following = place(self.stage, roles, number, previous=previous)
        if previous is not None:
            moves = transfers(following, previous, names)
            lost = [move.shard for move in moves if move.source is None]
            if lost:
                raise JobEndsError(
                    f"elastic: the optimizer state of shards {lost} is lost with its "
                    "owner, and no living member has a copy. Start the job again from "
                    "its last checkpoint."
                )
            self._move([(m.shard, str(m.source), m.target) for m in moves])
        self.placement = following
        for shard in set(range(number)) - self.held:
            for p in self._optimizer.shards[shard]:
                self._optimizer.state.pop(p, None)

    def notes(self) -> Mapping[str, Any]:
        """Stage and placement, for a joining member."""
        return {"stage": int(self.stage), "placement": self.placement}

    def load(self, notes: Mapping[str, Any]) -> None:
        """Begins with the stage and the placement of the job, and without states."""
        self.stage, self.placement = Stage(notes["stage"]), notes["placement"]
        self._optimizer.state.clear()

    # ---- inside ----

    @property
    def _placed(self) -> Placement:
        if self.placement is None:
            raise ConfigError("elastic: the optimizer has no members yet; call join.")
        return self.placement

    def _move(self, moves: list[tuple[int, str, str]]) -> None:
        """Sends states of shards from members to members: (shard, source, target)."""
        works: list[Any] = []
        for shard, source, target in moves:
            if source == self._name and target != self._name:
                rank = self._ranks[target]
                works += _group.begin_send(self._pack(shard), rank, shard)
        for shard, source, target in moves:
            if target == self._name and source != self._name:
                rank = self._ranks[source]
                self._unpack(shard, _group.receive(rank, shard, self._alarm))
        for work in works:
            _group.Watched(work, self._alarm).wait()

    def _pack(self, shard: int) -> Snapshot:
        states = [dict(self._optimizer.state.get(p, {})) for p in self._of(shard)]
        outline, tensors = pickled(states)
        data = torch.empty(bytes_of(tensors), dtype=torch.uint8)
        for placed, tensor in tensors:
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            data[placed.offset : placed.offset + flat.numel()] = flat
        return Snapshot(torch.frombuffer(bytearray(outline), dtype=torch.uint8), data)

    def _unpack(self, shard: int, snapshot: Snapshot) -> None:
        outline = snapshot.outline.numpy().tobytes()
        device = self._flats[shard].device
        states = unpickled(outline, snapshot.data, device)
        for p, state in zip(self._of(shard), states, strict=True):
            self._optimizer.state.pop(p, None)
            if state:
                self._optimizer.state[p] = {
                    k: v.clone() if isinstance(v, torch.Tensor) else v
                    for k, v in state.items()
                }

    def _of(self, shard: int) -> list[torch.nn.Parameter]:
        return self._optimizer.shards[shard]
