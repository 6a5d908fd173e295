# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A registered model, as the `StepLoader` of `register(steps=)` uses it."""

import json
from collections.abc import Callable, Collection
from dataclasses import asdict
from functools import cached_property
from typing import Any

import torch
from torch.distributed.distributed_c10d import (
    PrefixStore,
    Store,
    _get_default_store,
)
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import _C
from aikido_torch._backend import backend_of, was_met_at_store
from aikido_torch._hook import Hook
from aikido_torch.ddp._handle import Handle
from aikido_torch.ddp._item_mail import ItemMail
from aikido_torch.ddp._survivor_mail import SurvivorMail
from aikido_torch.ddp._taken_work import TakenWork
from aikido_torch.reassign import StepLoader
from aikido_torch.reassign._items import Exchange
from aikido_torch.reassign._proof import RankLists
from aikido_torch.recovery._agreement import gather
from aikido_torch.straggler import ActiveBackup, Policy

__all__ = ["StepTraining", "facts_of", "why_no_steps"]

# Steps of whose lists a rank keeps those that it has published.
_KEPT_STEPS = 256


def facts_of(steps: StepLoader | None) -> dict[str, str]:
    """Facts about the loader that must be equal on all ranks."""
    return {"steps": "none"} if steps is None else steps.facts()


def why_no_steps(
    steps: StepLoader | None,
    model: DistributedDataParallel,
    policy: Policy,
    late: str,
    batches_per_step: int,
    sampler: object,
) -> str:
    """Reason why the loader cannot be used with these arguments of `register`.

    "" if it can.
    """
    if steps is None:
        return ""
    if isinstance(policy, ActiveBackup):
        return (
            "register: policy is ActiveBackup and steps is given; a backup computes "
            "the batch of one primary, and with steps the micro-batches of a rank "
            "move to other ranks. Use SkipStraggler or WaitAll with steps."
        )
    if sampler is not None:
        return (
            "register: sampler and steps are given; steps gives the samples, so leave "
            "sampler out."
        )
    if batches_per_step != 1:
        return (
            f"register: batches_per_step is {batches_per_step!r} and steps is given; "
            "steps accumulates the micro-batches of a step, so leave batches_per_step "
            "out."
        )
    if late == "carry":
        return (
            'register: late is "carry" and steps is given; the micro-batches of a late '
            "rank are computed again, so its gradient would count twice. Use "
            'late="drop".'
        )
    if getattr(policy, "divisor", "contributors") == "world":
        return (
            'register: the policy has divisor="world" and steps is given; the ranks '
            "compute different numbers of micro-batches, so the mean is over the "
            'contributors: use divisor="contributors".'
        )
    if model.static_graph:
        return (
            "register: the model has static_graph=True and steps is given; a rank that "
            "takes no further micro-batch ends its step with another graph. Use "
            "static_graph=False."
        )
    if steps.debug and not was_met_at_store(backend_of(model.process_group)):
        return (
            "register: steps has debug=True, which needs the store of the job, and the "
            "group got its members by reconfigure, which need not share a store. Use "
            "debug=False."
        )
    if steps.has_streams and not was_met_at_store(backend_of(model.process_group)):
        return (
            "register: the dataset of steps is a stream, and the ranks agree on its "
            "end by the store of the job. The group got its members by reconfigure, "
            "which need not share a store. Use a dataset with a length."
        )
    return steps.why_not(model.process_group.size())


def _stream_key(run: int, rank: int) -> str:
    return f"stream/{run}/{rank}"


def _key(step: int, rank: int) -> str:
    return f"{step}/{rank}"


class StepTraining:
    """Implements `reassign._training.Training`. For the training thread only.

    Args:
        model: the registered model, which keeps its handle alive.
        handle: its handle.
        optimizer: optimizer of the loop.
        number: equal on all ranks, and different for each model of a group.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        handle: Handle,
        optimizer: torch.optim.Optimizer,
        number: int,
    ) -> None:
        self.model = model
        self._handle = handle
        self._optimizer = optimizer
        self._backend = handle._backend
        self._number = number
        self._mail = SurvivorMail(self._backend, number)
        self._taken = TakenWork(self._backend)

    @cached_property
    def _store(self) -> Store:
        name = f"aikido/steps/{self._backend.group_name}"
        return PrefixStore(name, _get_default_store())

    @property
    def place(self) -> tuple[int, int]:
        """Rank and size of the group."""
        rank, size = self._backend.place
        return rank, size

    @property
    def timeout_s(self) -> float:
        """Deadline of the group's calls."""
        return self._backend.call_timeout.total_seconds()

    @property
    def steps(self) -> int:
        """Optimizer steps that have passed through this rank."""
        return self._handle.steps

    def catch_up(self) -> object:
        """Applies the steps that this rank has missed."""
        return self._handle.catch_up()

    def set_weight(self, weight: float) -> None:
        """Sets the weight of this rank's gradients in the present step."""
        self._handle.weight = weight

    def contributors(self, step: int) -> Collection[int] | None:
        """Ranks whose contribution is in the whole result; see `Training`.

        A step whose calls failed has none. With slack the calls may not have ended, but
        wait for all ranks.
        """
        if self._handle._delay is not None:
            return range(self._backend.place[1])
        self._handle._collect()
        counters = self._handle._book.counters(step)
        if counters.way == "copied":
            return None
        if counters.num_calls == 0:
            return ()
        return set(range(self._backend.place[1])) - counters.skipped.keys()

    def publish(self, step: int, lists: RankLists) -> None:
        """Makes the lists of this rank known, before it contributes to `step`."""
        rank, _ = self._backend.place
        self._store.set(_key(step, rank), json.dumps(asdict(lists)))
        if step >= _KEPT_STEPS:
            self._store.delete_key(_key(step - _KEPT_STEPS, rank))

    def published(self, step: int, rank: int) -> RankLists | None:
        """The lists of a contributor of `step`; None: it is long ago. Never waits."""
        if not self._store.check([_key(step, rank)]):
            return None
        return RankLists(**json.loads(self._store.get(_key(step, rank))))

    def on_taken(self, owner: int, label: int, begin_ns: int, seconds: float) -> None:
        """This rank has computed a micro-batch of `owner`."""
        self._taken.add(owner, label, begin_ns, seconds)

    def gone(self) -> tuple[Collection[int], int]:
        """Ranks that have left or died, and the first step without them."""
        gone = self._backend.gone
        # A rank that is gone has called no step that no rank is known to have called.
        calls = self._backend.called_ahead
        return gone, self.steps + -(-calls // max(1, len(self._handle._buckets)))

    def tell_of(self, dead: int, ranks: list[int], numbers: list[int]) -> None:
        """Sends whole numbers about a dead rank to some ranks. Never waits."""
        self._mail.send(dead, ranks, numbers)

    def told_of(self, dead: int, rank: int) -> list[int] | None:
        """Numbers of `rank` about a dead rank; None: not here yet. Never waits."""
        return self._mail.receive(dead, rank)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank. All ranks call it together."""
        return gather(value, self.model.process_group)

    def exchange(self, hosts: list[int], helpers: int) -> Exchange:
        """A new exchange of items. All ranks call it together."""
        return _C.ReassignExchange(self._backend, hosts, helpers)

    def item_mail(self) -> ItemMail:
        """This rank's end of the messages with the data of items."""
        return ItemMail(self._backend, self._number)

    def tell_stream(self, run: int, num_steps: int, *, has_ended: bool) -> None:
        """Tells all ranks about the stream of this rank; see `Training`."""
        rank, _ = self.place
        self._store.set(_stream_key(run, rank), json.dumps([num_steps, has_ended]))

    def told_stream(self, run: int, rank: int) -> tuple[int, bool]:
        """What `rank` has told about its stream; see `Training`. Never waits."""
        key = _stream_key(run, rank)
        if not self._store.check([key]):
            return 0, False
        num_steps, has_ended = json.loads(self._store.get(key))
        return num_steps, has_ended

    def before_update(self, call: Callable[[], None]) -> None:
        """Calls `call` before each step of the optimizer in the loop."""
        self._optimizer.register_step_pre_hook(Hook(call, is_weak=True))
