# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Items of one rank that are in no sum yet, and that it must issue again. Pure.

Note [items that must be issued again]
An item of a rank counts if the rank that computed it contributed to the step. The owner
of the item decides, and nobody else issues it again. There are three cases:
- The rank has missed the step. Then no rank has computed an item of its list.
- The rank has computed the item itself, and its contribution was skipped.
- A helper has the item, and the exchange reports it as lost.
"""

from collections import deque
from collections.abc import Collection, Iterable

__all__ = ["PendingItems"]


class PendingItems:
    """Lost items of one rank, oldest first. For one thread.

    Args:
        reissues: False drops lost items and counts them.

    Attributes:
        num_lost: items that were in no sum at first.
        num_issued_again: items that this rank has put into a later list.
        num_dropped: items that are in no sum, and will not be.
    """

    def __init__(self, *, reissues: bool) -> None:
        self._reissues = reissues
        self._items: deque[int] = deque()
        # Own items in the own contribution to a step whose outcome is not known yet.
        self._sent: dict[int, list[int]] = {}
        self.num_lost = self.num_issued_again = self.num_dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def labels(self) -> list[int]:
        """The items, without those of `send`."""
        return list(self._items)

    def resume(self, labels: Iterable[int]) -> None:
        """Replaces the items by those of an earlier training."""
        self._items = deque(labels)

    def lose(self, labels: Iterable[int]) -> None:
        """These items are in no sum."""
        labels = list(labels)
        self.num_lost += len(labels)
        if self._reissues:
            self._items.extend(labels)
        else:
            self.num_dropped += len(labels)

    def drop(self, labels: Collection[int]) -> None:
        """These items may be in a sum, so they must not be issued again."""
        self.num_lost += len(labels)
        self.num_dropped += len(labels)

    def send(self, step: int, labels: Iterable[int]) -> None:
        """The contribution of this rank to `step` has these own items."""
        self._sent[step] = list(labels)

    def sent_in(self, step: int) -> list[int]:
        """Argument of `send` for a step without `on_outcome`."""
        return self._sent[step]

    def steps_without_outcome(self) -> list[int]:
        """Steps of `send` without `on_outcome`, ascending."""
        return sorted(self._sent)

    def on_outcome(self, step: int, *, has_counted: bool) -> None:
        """The result of `step` is known.

        Args:
            step: argument of an earlier `send`.
            has_counted: True if this rank's contribution is in the result.
        """
        labels = self._sent.pop(step)
        if not has_counted:
            self.lose(labels)

    def take(self, num_own: int) -> list[int]:
        """Items to issue again in a step that has `num_own` own items without them.

        A step has at most twice its own items, and one more if there are none.
        """
        count = min(len(self._items), max(1, num_own))
        self.num_issued_again += count
        return [self._items.popleft() for _ in range(count)]
