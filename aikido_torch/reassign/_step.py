# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One optimizer step of a loop: its micro-batches on this rank."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from aikido_torch.data._seeds import item_seed, seed_all, seed_of
from aikido_torch.errors import AikidoError, ConfigError
from aikido_torch.reassign._gradient import StepGradient
from aikido_torch.reassign._items import Claim, Exchange
from aikido_torch.reassign._pending import PendingItems
from aikido_torch.reassign._plan import Item, Plan, place_of
from aikido_torch.reassign._proof import RankLists
from aikido_torch.reassign._reader import ItemReader
from aikido_torch.reassign._staging import NotHereError, StagedItems
from aikido_torch.reassign._training import Training

__all__ = ["MicroBatch", "Step", "StepParts"]

_log = logging.getLogger("aikido")


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatch:
    """Samples of one item, and the factor of their loss.

    Attributes:
        data: the result of `collate_fn` for the samples.
        weight: factor of the loss, which is the mean over the samples of `data`.
        indices: of the samples in the dataset.
        owner: the rank that began the step with the item.
        label: name of the item: the epoch in the high 32 bits, the number of the
            micro-batch in the epoch in the low 32 bits.
        is_taken: True if this rank has taken the item from its owner.
    """

    data: Any
    weight: float
    indices: list[int]
    owner: int
    label: int
    is_taken: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class StepParts:
    """Objects that all steps of a loader share.

    Attributes:
        training: the registered model.
        plan: items of all epochs.
        reader: reads the samples of an item.
        exchange: source of the items.
        gradient: gradient of the present step.
        pending: lost items of this rank.
        seed: of the random numbers of the items.
        proves: True if this rank publishes its lists of each step.
    """

    training: Training
    plan: Plan
    reader: ItemReader | StagedItems
    exchange: Exchange
    gradient: StepGradient
    pending: PendingItems
    seed: int
    proves: bool = False


# State of a step.
#
#     state    event                                          next
# - "new"      the loop takes the first micro-batch           "open"
# - "open"     the loop has taken all micro-batches           "over"
# - "open"     the loop leaves early, all backwards ended     "over"
# - "open"     an error within a backward or the exchange     "broken"
State = Literal["new", "open", "over", "broken"]


class Step:
    """Iterable of the micro-batches of this rank: its own, and those taken over.

    Args:
        parts: objects that all steps share.
        number: see below.
        epoch: of the items.
        labels: see below.
        likely: items of other ranks that this rank will probably take over.

    Attributes:
        number: number of the step, from 0; the same on all ranks.
        labels: items that this rank begins the step with.
        state: see the table above.
        computed: owner and label of the items in the gradient of this rank, in order.
        seconds: time that this rank computed.
        knew_last: True if the sums began in the backward of the last item.
        cost_begun, cost_computed: predicted costs of `labels` and `computed`.
    """

    def __init__(
        self,
        parts: StepParts,
        number: int,
        epoch: int,
        labels: list[int],
        likely: Sequence[int] = (),
    ) -> None:
        self._parts = parts
        self.number, self.labels = number, labels
        self.state: State = "new"
        self.computed: list[tuple[int, int]] = []
        self.seconds = 0.0
        self.knew_last = False
        self._epoch = epoch
        self._rank, _ = parts.training.place
        self._timeout_s = parts.training.timeout_s
        # All own items at once: code that runs between two computations is cold.
        self._items = {label: self._find(label) for label in labels}
        items = [item for item, _ in self._items.values()]
        costs = [item.cost for item in items]
        self.cost_begun, self.cost_computed = sum(costs), 0.0
        self._running: tuple[Claim, Item] | None = None  # the loop computes it
        self._began_at = 0.0
        parts.gradient.begin(item.size for item in items)
        parts.reader.expect(items, [*map(parts.plan.item, likely)])
        parts.exchange.begin(number, labels, costs)

    def __iter__(self) -> Iterator[MicroBatch]:
        if self.state != "new" or self._parts.training.steps != self.number:
            raise ConfigError(
                f"StepLoader: step {self.number} is iterated a second time, or after "
                f"step {self._parts.training.steps} has begun; iterate each step once, "
                "where the loader gives it."
            )
        return self._micro_batches()

    def _micro_batches(self) -> Iterator[MicroBatch]:
        self.state = "open"
        try:
            while (claim := self._next()) is not None:
                try:
                    micro_batch = self._micro_batch(claim)
                except NotHereError as reason:
                    _log.warning("%s", reason)
                    self._leave()
                    return
                yield micro_batch
                self._on_computed()
                if claim.is_last:
                    break
            self._end()
        except AikidoError:
            self._break()
            raise
        except BaseException:
            # Also a break, and an error in the body of the loop: Python then closes
            # this generator.
            self._leave()
            raise

    def _find(self, label: int) -> tuple[Item, int]:
        """An item, and the seed of its random numbers."""
        plan, seed = self._parts.plan, self._parts.seed
        return plan.item(label), item_seed(seed, *place_of(label))

    def _next(self) -> Claim | None:
        claim = self._parts.exchange.claim(self._timeout_s)
        self._began_at = time.monotonic()
        return claim

    def _micro_batch(self, claim: Claim) -> MicroBatch:
        parts, label, owner = self._parts, claim.label, claim.owner
        item, seed = self._items.get(label) or self._find(label)
        data = parts.reader.read(item, None if owner == self._rank else owner)
        seed_all(seed)
        weight = parts.gradient.before(item.size, is_last=claim.is_last)
        self._running = claim, item
        if claim.is_last:
            self._publish([*self.computed, (owner, label)])
        return MicroBatch(
            data=data,
            weight=weight,
            indices=item.indices,
            owner=owner,
            label=label,
            is_taken=owner != self._rank,
        )

    def _publish(self, computed: Sequence[tuple[int, int]]) -> None:
        """Publishes the lists of this rank, before it contributes."""
        parts = self._parts
        if parts.proves:
            lists = RankLists(
                begun=self.labels,
                computed=[label for _, label in computed],
                waiting=parts.pending.labels,
                num_dropped=parts.pending.num_dropped,
            )
            parts.training.publish(self.number, lists)

    def _on_computed(self) -> None:
        assert self._running is not None
        claim, item = self._running
        self._running = None
        seconds = self._seconds_of(item.cost, is_last=claim.is_last)
        self.computed.append((claim.owner, item.label))
        self.cost_computed += item.cost
        self.seconds += seconds
        self._parts.exchange.finished(seconds)
        training = self._parts.training
        if claim.owner != training.place[0]:
            begin_ns = round(self._began_at * 1e9)
            training.on_taken(claim.owner, claim.label, begin_ns, seconds)

    def _seconds_of(self, cost: float, *, is_last: bool) -> float:
        """Time of the item that was just computed, without the wait for the sums."""
        gradient = self._parts.gradient
        if not gradient.is_on_gpu:
            end = gradient.computed_at if is_last else time.monotonic()
            return max(0.0, end - self._began_at)
        if is_last and self.cost_computed:
            # The stream waits for the sums of other ranks after it.
            return self.seconds / self.cost_computed * cost
        if not is_last:
            torch.cuda.current_stream(gradient.device).synchronize()
        return time.monotonic() - self._began_at

    def _end(self) -> None:
        """All items are in the gradient of this rank."""
        parts = self._parts
        self.state = "over"
        mine = [label for owner, label in self.computed if owner == self._rank]
        parts.pending.send(self.number, mine)
        self.knew_last = parts.gradient.is_summed
        if not self.knew_last:
            self._publish(self.computed)
        parts.gradient.end()
        # Random numbers of the optimizer are equal on all ranks.
        seed_all(seed_of(parts.seed, self._epoch, self.number, 0))

    def _leave(self) -> None:
        """The loop leaves the step with items that are not computed."""
        if self.state != "open":
            return
        gradient = self._parts.gradient
        if not gradient.is_whole:
            self._break()
            return
        if self._running is not None and not gradient.undo():
            self._on_computed()
        self._give_back()
        self._end()

    def _break(self) -> None:
        """The gradient of this rank cannot be used, or the exchange has failed."""
        if self.state != "open":
            return
        self.state = "broken"
        self._parts.training.model.require_backward_grad_sync = True
        mine = [label for owner, label in self.computed if owner == self._rank]
        self._parts.pending.send(self.number, mine)
        self._give_back()

    def _give_back(self) -> None:
        left = self._parts.exchange.leave()
        self._parts.pending.lose(label for _, _, label in left)
