# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Interface of a registered model, as a `StepLoader` uses it."""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from torch.nn.parallel import DistributedDataParallel

from aikido_torch.reassign._items import Exchange
from aikido_torch.reassign._proof import RankLists

__all__ = ["ItemMail", "Training"]


class ItemMail(Protocol):
    """Messages with the data of items."""

    def serve(
        self, data_of: Callable[[int], bytes | None], is_busy: Callable[[], bool]
    ) -> None:
        """Begins to send own items to the ranks that took them.

        Args:
            data_of: data of an own item, by label; None: not here. Any thread.
            is_busy: True if helpers have own items of the present step. Any thread.
        """

    def fetch(self, owner: int, label: int, timeout_s: float) -> bytes | None:
        """Data of an item of `owner`; None: it does not come in time, or never."""


class Training(Protocol):
    """A registered model, its group and its steps. For the training thread only."""

    @property
    def model(self) -> DistributedDataParallel:
        """The model."""

    @property
    def place(self) -> tuple[int, int]:
        """Rank and size of the group."""

    @property
    def timeout_s(self) -> float:
        """Deadline of the group's calls."""

    @property
    def steps(self) -> int:
        """Optimizer steps that have passed through this rank."""

    def catch_up(self) -> object:
        """Applies the steps that this rank has missed."""

    def set_weight(self, weight: float) -> None:
        """Sets the weight of this rank's gradients in the present step."""

    def contributors(self, step: int) -> Collection[int] | None:
        """Ranks whose contribution to an earlier step is in its whole result.

        None: not known, because a copied state has the step.
        """

    def publish(self, step: int, lists: RankLists) -> None:
        """Makes the lists of this rank known, before it contributes to `step`."""

    def published(self, step: int, rank: int) -> RankLists | None:
        """The lists of a contributor of `step`; None: it is long ago. Never waits."""

    def on_taken(self, owner: int, label: int, begin_ns: int, seconds: float) -> None:
        """This rank has computed an item of `owner`, from time.monotonic_ns() on."""

    def gone(self) -> tuple[Collection[int], int]:
        """Ranks that have left or died, and the first step without them.

        They contribute to no step from that one on.
        """

    def tell_of(self, dead: int, ranks: list[int], numbers: list[int]) -> None:
        """Sends whole numbers about a dead rank to some ranks. Never waits."""

    def told_of(self, dead: int, rank: int) -> list[int] | None:
        """Numbers of `rank` about a dead rank; None: not here yet. Never waits."""

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank. All ranks call it together."""

    def exchange(self, hosts: list[int], helpers: int) -> Exchange:
        """A new exchange of items. All ranks call it together."""

    def item_mail(self) -> ItemMail:
        """This rank's end of the messages with the data of items."""

    def tell_stream(self, run: int, num_steps: int, *, has_ended: bool) -> None:
        """Tells all ranks about the stream of this rank.

        Args:
            run: number of the iteration of the loader.
            num_steps: steps up to the last one for which the stream had items.
            has_ended: True if it has no further items.
        """

    def told_stream(self, run: int, rank: int) -> tuple[int, bool]:
        """Last `num_steps` and `has_ended` of `rank`; 0, False at first.

        Never waits.
        """

    def before_update(self, call: Callable[[], None]) -> None:
        """Calls `call` before each step of the optimizer in the loop."""
