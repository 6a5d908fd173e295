# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Elastic sampler: each item of an epoch is trained exactly once by changing members.

The sampler has no threads and reads no clock. Equal calls give equal items, so that all
members of a job hold the same sampler and agree on the items of a step without a
message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aikido_torch.data._arguments import check_flag, check_whole
from aikido_torch.data._seeds import length_of, seed_of
from aikido_torch.errors import ConfigError

__all__ = ["Assignment", "ElasticSampler"]

_NO_LENGTH = "its items cannot be divided among members that come and go"
# A state can be loaded only if these are equal; otherwise the items would differ.
_SAME = ("num_items", "shuffle", "seed")


@dataclass(frozen=True)
class Assignment:
    """Items of one step, by member.

    Attributes:
        step: number of the step, from 0; steps of all epochs count.
        epoch: epoch of the items.
        items: indices of the dataset by member. A member may have no items at the end
            of an epoch.
        batch_size: most items in a batch.
    """

    step: int
    epoch: int
    items: Mapping[str, tuple[int, ...]]
    batch_size: int

    @property
    def num_items(self) -> int:
        """Number of items of all members."""
        return sum(map(len, self.items.values()))

    def batches_of(self, member: str) -> tuple[tuple[int, ...], ...]:
        """Items of this member in batches; none if the member has no part."""
        own, size = self.items.get(member, ()), self.batch_size
        return tuple(own[i : i + size] for i in range(0, len(own), size))

    def share_of(self, member: str) -> float:
        """Part of the items that this member has; the shares of a step sum to 1.

        The mean gradient over all items is the sum of `share * mean of the member`.
        """
        total = self.num_items
        return len(self.items.get(member, ())) / total if total else 0.0


class ElasticSampler:
    """Items for the members of each step, with each item of an epoch exactly once.

    ```
              assign             commit
    between ---------> assigned ---------> between (the items are done)
                          |  ^
                          +--+ lose (items of lost members return to the epoch)
    ```

    A step that failed is repeated by the survivors with the same items: `lose` keeps
    their items. Items of lost members are the first ones of the next step.

    Args:
        dataset: a dataset with a length, or the number of items.
        batch_size: most items in a batch.
        batches_per_step: most batches of a member in a step, for gradient accumulation.
        shuffle: True: a new order in each epoch, from `seed` and the epoch.
        seed: the same on all members.

    Attributes:
        epoch: epoch of the next items.
        step: number of committed steps.

    Raises:
        ConfigError: an argument is wrong, or the dataset has no length.
    """

    def __init__(
        self,
        dataset: object,
        batch_size: int,
        *,
        batches_per_step: int = 1,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        is_number = type(dataset) is int
        self.num_items = (
            dataset
            if isinstance(dataset, int) and is_number
            else length_of("ElasticSampler", dataset, so=_NO_LENGTH)
        )
        for name, value, least in (
            ("dataset", self.num_items, 1),
            ("batch_size", batch_size, 1),
            ("batches_per_step", batches_per_step, 1),
            ("seed", seed, None),
        ):
            check_whole("ElasticSampler", name, value, least)
        check_flag("ElasticSampler", "shuffle", shuffle)
        self.batch_size = batch_size
        self.batches_per_step = batches_per_step
        self.shuffle = shuffle
        self.seed = seed
        self.step = 0
        self.epoch = 0
        self._place = 0  # position of the first item that was never assigned
        self._returned: list[int] = []  # positions to assign again, ascending
        self._assigned: dict[str, list[int]] | None = None  # positions by member
        self._last: _Committed | None = None
        self._order = self._order_of(0)

    # ---- a step ----

    @property
    def num_remaining(self) -> int:
        """Number of items of this epoch that are not committed."""
        assigned = sum(map(len, (self._assigned or {}).values()))
        return self.num_items - self._place + len(self._returned) + assigned

    @property
    def is_assigned(self) -> bool:
        """True between `assign` and `commit`."""
        return self._assigned is not None

    @property
    def assignment(self) -> Assignment:
        """The assigned step.

        Raises:
            ConfigError: no step is assigned.
        """
        self._needed("assignment")
        return self._assignment()

    def assign(self, members: Sequence[str]) -> Assignment:
        """Items of the next step for these members.

        A step has at most `batch_size * batches_per_step` items of each member. The
        last step of an epoch may have fewer items, which are divided evenly. A step has
        no items of two epochs. A repeated call before `commit` returns the same items.

        Args:
            members: members that train, in rank order; the same on all members.

        Raises:
            ConfigError: there is no member, a name appears twice, or the step is
                already assigned to other members.
        """
        if self._assigned is not None:
            if list(self._assigned) != list(members):
                raise ConfigError(
                    f"ElasticSampler: step {self.step} is assigned to "
                    f"{', '.join(self._assigned)}, and assign is called for "
                    f"{', '.join(members)}; call commit, lose or release first."
                )
            return self._assignment()
        if not members or len(set(members)) < len(members):
            raise ConfigError(
                f"ElasticSampler: the members of step {self.step} are {list(members)}; "
                "give each member once, and one member at least."
            )
        if not self.num_remaining:
            self.epoch, self._place = self.epoch + 1, 0
            self._order = self._order_of(self.epoch)
        most = len(members) * self.batch_size * self.batches_per_step
        taken, self._returned = self._returned[:most], self._returned[most:]
        end = min(self._place + most - len(taken), self.num_items)
        taken += range(self._place, end)
        self._place = end
        low, num_more = divmod(len(taken), len(members))
        self._assigned, begin = {}, 0
        for i, member in enumerate(members):
            length = low + (i < num_more)
            self._assigned[member] = taken[begin : begin + length]
            begin += length
        return self._assignment()

    def commit(self) -> None:
        """Counts the items of the assigned step as trained.

        Raises:
            ConfigError: no step is assigned.
        """
        assigned = self._needed("commit")
        self._last = _Committed(self.epoch, assigned)
        self._assigned = None
        self.step += 1

    def lose(self, members: Sequence[str]) -> Assignment | None:
        """The assigned step without lost members.

        The survivors keep their items. Items of lost members return to the epoch.

        Args:
            members: lost members; members without a part in the step are ignored.

        Returns:
            The step that the survivors repeat; None if no survivor has items. In that
            case the next `assign` begins the step anew.

        Raises:
            ConfigError: no step is assigned.
        """
        assigned = self._needed("lose")
        for member in members:
            self._return(assigned.pop(member, []))
        if not any(assigned.values()):
            self._assigned = None
            return None
        return self._assignment()

    def release(self) -> None:
        """Takes back the assigned step; its items return to the epoch.

        Without an assigned step nothing changes.
        """
        for positions in (self._assigned or {}).values():
            self._return(positions)
        self._assigned = None

    def roll_back(self) -> Assignment:
        """Makes the last committed step the assigned step again.

        So a step that is lost with its owner is replayed with the same items.
        An assigned step is released first. Only one step can be rolled back.

        Raises:
            ConfigError: no step was committed since the last rollback or load.
        """
        if self._last is None:
            raise ConfigError(
                f"ElasticSampler: step {self.step - 1} is to be rolled back, and only "
                "the last committed step can be; load an earlier state instead."
            )
        self.release()
        last, self._last = self._last, None
        if last.epoch != self.epoch:  # nothing of the new epoch is committed
            self.epoch = last.epoch
            self._order = self._order_of(last.epoch)
            self._place, self._returned = self.num_items, []
        self._assigned = last.positions
        self.step -= 1
        return self._assignment()

    # ---- a stopped training ----

    def state_dict(self) -> dict[str, Any]:
        """Committed items, for `load_state_dict` of any number of members.

        Items of an assigned step count as not trained.
        """
        assigned = (self._assigned or {}).values()
        returned = sorted([*self._returned, *(p for each in assigned for p in each)])
        return {
            "step": self.step,
            "epoch": self.epoch,
            "place": self._place,
            "returned": returned,
            "of": {name: getattr(self, name) for name in _SAME},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes the epoch of a state, also with another number of members.

        `batch_size` and `batches_per_step` may differ from those of the state.

        Raises:
            ConfigError: the state is damaged, or of a sampler with another order.
        """
        _check_state(state)
        for name in _SAME:
            own, theirs = getattr(self, name), state["of"].get(name)
            if own != theirs:
                raise ConfigError(
                    f"ElasticSampler: the state to load is of a sampler with {name}="
                    f"{theirs!r}, but here it is {own!r}, so its items are others; "
                    f"take {name}={theirs!r}, or begin without a state."
                )
        self.step, self.epoch = state["step"], state["epoch"]
        self._place, self._returned = state["place"], list(state["returned"])
        self._assigned = self._last = None
        self._order = self._order_of(self.epoch)

    # ---- inside ----

    def _needed(self, call: str) -> dict[str, list[int]]:
        if self._assigned is None:
            raise ConfigError(
                f"ElasticSampler: {call} is called, and step {self.step} is not "
                "assigned; call assign first."
            )
        return self._assigned

    def _return(self, positions: Sequence[int]) -> None:
        self._returned = sorted([*self._returned, *positions])

    def _assignment(self) -> Assignment:
        assert self._assigned is not None
        items = {
            member: tuple(self._order[p] for p in positions)
            for member, positions in self._assigned.items()
        }
        return Assignment(self.step, self.epoch, items, self.batch_size)

    def _order_of(self, epoch: int) -> Sequence[int]:
        """Indices of the dataset by position in the epoch."""
        if not self.shuffle:
            return range(self.num_items)
        generator = torch.Generator()
        generator.manual_seed(seed_of(self.seed, epoch, 0, 0))
        order: list[int] = torch.randperm(self.num_items, generator=generator).tolist()
        return order


@dataclass(frozen=True)
class _Committed:
    """The last committed step."""

    epoch: int
    positions: dict[str, list[int]]


def _check_state(state: object) -> None:
    def refuse(what: str) -> ConfigError:
        return ConfigError(
            f"ElasticSampler: the state to load {what}; give the result of "
            "state_dict() of an ElasticSampler."
        )

    if not isinstance(state, Mapping):
        raise refuse(f"is a {type(state).__name__}")
    if missing := {"step", "epoch", "place", "returned", "of"} - {*state}:
        raise refuse(f"has no {sorted(missing)[0]!r}")
    for name in ("step", "epoch", "place"):
        if type(state[name]) is not int or state[name] < 0:
            raise refuse(f"has {name}={state[name]!r}")
    of = state["of"]
    if not isinstance(of, Mapping) or type(of.get("num_items")) is not int:
        raise refuse(f"has of={of!r}")
    if state["place"] > of["num_items"]:
        raise refuse(f"has place={state['place']} of {of['num_items']} items")
    returned = state["returned"]
    is_valid = (
        isinstance(returned, list)
        and all(type(p) is int and 0 <= p < state["place"] for p in returned)
        and returned == sorted(set(returned))
    )
    if not is_valid:
        raise refuse(f"has returned={returned!r:.80}")
