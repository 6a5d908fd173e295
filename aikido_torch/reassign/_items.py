# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Source of a rank's items in a step: the exchange between ranks, or its own list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Claim", "Exchange", "Loss", "OwnItems", "Work"]


class Claim(Protocol):
    """Item that this rank computes next."""

    @property
    def owner(self) -> int:
        """The rank that began the step with the item."""

    @property
    def index(self) -> int:
        """Place of the item in the list of its owner."""

    @property
    def label(self) -> int:
        """Name of the item; see `Plan`."""

    @property
    def is_last(self) -> bool:
        """True if nothing follows in this step. It may be False for the last item."""


class Loss(Protocol):
    """Item of this rank that a helper took and that is not in the sum of its step."""

    @property
    def label(self) -> int:
        """Name of the item."""

    @property
    def helper(self) -> int:
        """The rank that took it."""

    @property
    def reason(self) -> str:
        """ "in_doubt" if the item may be in a sum."""


class Work(Protocol):
    """Work of one rank in a step."""

    @property
    def num_given(self) -> int:
        """Own items that helpers took."""

    @property
    def taken(self) -> Sequence[tuple[int, int]]:
        """Owner and label of items of other ranks that this rank has begun."""


class Exchange(Protocol):
    """Items of steps; csrc/reassign/reassigner.h has the rules. For one thread.

    A step is over after a claim that `is_last`, a claim that
    is None, or `leave`.
    """

    def begin(self, step: int, labels: list[int], costs: list[float]) -> None:
        """Begins a step with own items. Larger costs come first."""

    def claim(self, timeout_s: float) -> Claim | None:
        """Next item; None: nothing follows in this step."""

    def finished(self, seconds: float) -> None:
        """The gradient of the last claim is in this rank's sum."""

    def leave(self) -> list[tuple[int, int, int]]:
        """Ends the step. Owner, index, label of own items that were not computed."""

    def outcome(self, step: int, contributors: list[int]) -> None:
        """The sum of `step` has the contributions of these ranks."""

    def take_losses(self) -> Sequence[Loss]:
        """Losses since the last call."""

    def report(self) -> Work:
        """Work of this rank in the present step."""

    def stop(self) -> None:
        """Ends the exchange. Idempotent."""


@dataclass(frozen=True, kw_only=True)
class _OwnClaim:
    owner: int
    index: int
    label: int
    is_last: bool


@dataclass(frozen=True, kw_only=True)
class _OwnWork:
    num_given: int = 0
    taken: tuple[tuple[int, int], ...] = ()


class OwnItems:
    """Exchange of a rank that has no helpers and helps nobody: its list, in order."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._items: list[tuple[int, int]] = []  # owner and label
        self._knows_last = True
        self._num_claimed = self._num_done = 0

    def begin(self, step: int, labels: list[int], costs: list[float]) -> None:
        """See `Exchange`."""
        self._begin([(self._rank, label) for label in labels])

    def _begin(self, items: list[tuple[int, int]], *, knows_last: bool = True) -> None:
        self._items, self._knows_last = items, knows_last
        self._num_claimed = self._num_done = 0

    def claim(self, timeout_s: float) -> Claim | None:
        """See `Exchange`."""
        index = self._num_claimed
        if index == len(self._items):
            return None
        self._num_claimed += 1
        owner, label = self._items[index]
        is_last = self._knows_last and self._num_claimed == len(self._items)
        return _OwnClaim(owner=owner, index=index, label=label, is_last=is_last)

    def finished(self, seconds: float) -> None:
        """See `Exchange`."""
        self._num_done = self._num_claimed

    def leave(self) -> list[tuple[int, int, int]]:
        """See `Exchange`."""
        left = enumerate(self._items[self._num_done :], self._num_done)
        self._num_claimed = self._num_done = len(self._items)
        return [(owner, i, label) for i, (owner, label) in left if owner == self._rank]

    def outcome(self, step: int, contributors: list[int]) -> None:
        """See `Exchange`."""

    def take_losses(self) -> Sequence[Loss]:
        """See `Exchange`."""
        return ()

    def report(self) -> Work:
        """See `Exchange`."""
        return _OwnWork()

    def stop(self) -> None:
        """See `Exchange`."""
