# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Items of each step, and the rank that begins with each item. Pure.

An item is one micro-batch: consecutive samples of the epoch's permutation. The plan
depends only on values that all ranks share, so each rank knows the lists of all ranks.
"""

import functools
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Item", "Plan", "label_of", "likely_taken", "place_of"]

_NUMBER_BITS = 32
# Steps whose costs a plan remembers: a step takes lost items of a few earlier ones.
_KNOWN_STEPS = 16


def label_of(epoch: int, number: int) -> int:
    """Name of the item `number` of an epoch, the same on all ranks."""
    return epoch << _NUMBER_BITS | number


def place_of(label: int) -> tuple[int, int]:
    """Epoch and number of an item."""
    return label >> _NUMBER_BITS, label & ((1 << _NUMBER_BITS) - 1)


def likely_taken(lists: Sequence[Sequence[int]], owners: Iterable[int]) -> list[int]:
    """Items that a rank will probably take over in a step.

    They are at the tails of the lists of the same ranks as in the step before, as many
    of each list as then.

    Args:
        lists: items that each rank begins the step with.
        owners: owner of each item that the rank took over in the step before.
    """
    counts = Counter(owners).items()
    return [label for owner, count in counts for label in lists[owner][-count:]]


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a plan.

    Attributes:
        label: its name; see `label_of`.
        indices: its samples, by their index in the dataset.
        size: number of samples in whole micro-batches; 1.0 if the item is whole.
        cost: predicted cost; the size if the plan has no costs.
    """

    label: int
    indices: list[int]
    size: float
    cost: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Items of all epochs.

    Args:
        num_samples: samples of the dataset.
        batch_size: samples of one step, over all ranks.
        micro_batch_size: samples of one item; divides `batch_size`.
        num_ranks: number of ranks.
        shuffle: False takes the samples in the order of the dataset.
        seed: of the permutations. They equal those of `DistributedSampler`.
        drop_last: True omits the last step of an epoch if it is not whole.
        costs: predicted cost of each sample, above 0; None: all are equal.
    """

    num_samples: int
    batch_size: int
    micro_batch_size: int
    num_ranks: int
    shuffle: bool
    seed: int
    drop_last: bool
    costs: npt.NDArray[np.float64] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of an epoch."""
        whole, rest = divmod(self.num_samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    @property
    def items_per_step(self) -> int:
        """Items of a whole step."""
        return self.batch_size // self.micro_batch_size

    def items_of(self, epoch: int, step: int) -> list[int]:
        """Labels of the items of step `step` of an epoch."""
        num_items = -(-self.num_samples // self.micro_batch_size)
        first = step * self.items_per_step
        end = min(first + self.items_per_step, num_items)
        return [label_of(epoch, number) for number in range(first, end)]

    def item(self, label: int) -> Item:
        """The item with this name."""
        cost = self.cost_of(label)
        return Item(label, self.indices_of(label), self.size_of(label), cost)

    def indices_of(self, label: int) -> list[int]:
        """Samples of an item, by their index in the dataset."""
        epoch, number = place_of(label)
        first = number * self.micro_batch_size
        end = min(first + self.micro_batch_size, self.num_samples)
        found: list[int] = self._permutation(epoch)[first:end].tolist()
        return found

    def size_of(self, label: int) -> float:
        """Samples of an item, in micro-batches: 1.0 unless the item is not whole."""
        first = place_of(label)[1] * self.micro_batch_size
        samples = min(self.micro_batch_size, self.num_samples - first)
        return samples / self.micro_batch_size

    def cost_of(self, label: int) -> float:
        """Predicted cost of an item: the sum over its samples."""
        if self.costs is None:
            return self.size_of(label)
        epoch, number = place_of(label)
        step, place = divmod(number, self.items_per_step)
        return self._costs_of(epoch, step)[place]

    def lists_of(self, epoch: int, step: int) -> list[list[int]]:
        """The items that each rank begins the step with, larger costs first.

        Without costs each rank gets a block of consecutive items. The lengths of two
        blocks differ by one at most. With costs the largest item goes first, to the
        rank with the least work so far.
        """
        labels = self.items_of(epoch, step)
        if self.costs is None:
            return list(_blocks(labels, self.num_ranks))
        return _longest_first(labels, self._costs_of(epoch, step), self.num_ranks)

    def in_order(self, labels: Sequence[int]) -> list[int]:
        """The items with larger costs first; equal costs in the order of labels."""
        return sorted(labels, key=lambda label: (-self.cost_of(label), label))

    @functools.cached_property
    def _costs_of(self) -> Callable[[int, int], list[float]]:
        """Function of epoch and step: costs of the items."""
        return functools.lru_cache(maxsize=_KNOWN_STEPS)(self._read_costs)

    def _read_costs(self, epoch: int, step: int) -> list[float]:
        assert self.costs is not None
        first = step * self.batch_size
        end = min(first + self.batch_size, self.num_samples)
        costs = self.costs[self._permutation(epoch)[first:end].numpy()]
        begins = range(0, end - first, self.micro_batch_size)
        found: list[float] = np.add.reduceat(costs, begins).tolist()
        return found

    def _permutation(self, epoch: int) -> torch.Tensor:
        return _permutation(self.num_samples, self.seed + epoch, self.shuffle)


@functools.lru_cache(maxsize=4)
def _permutation(count: int, seed: int, shuffle: bool) -> torch.Tensor:
    if not shuffle:
        return torch.arange(count)
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(count, generator=generator)


def _blocks(labels: Sequence[int], num_ranks: int) -> Iterator[list[int]]:
    each, rest = divmod(len(labels), num_ranks)
    first = 0
    for rank in range(num_ranks):
        end = first + each + (rank < rest)
        yield list(labels[first:end])
        first = end


def _longest_first(
    labels: Sequence[int], costs: Sequence[float], num_ranks: int
) -> list[list[int]]:
    """Graham's rule: longest processing time first (SIAM J. Appl. Math. 17, 1969)."""
    lists: list[list[int]] = [[] for _ in range(num_ranks)]
    loads = [(0.0, rank) for rank in range(num_ranks)]
    in_order = sorted(range(len(labels)), key=lambda place: (-costs[place], place))
    for place in in_order:
        load, rank = loads[0]
        lists[rank].append(labels[place])
        heapq.heapreplace(loads, (load + costs[place], rank))
    return lists
