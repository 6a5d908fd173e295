# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Reads the samples of an item, with the same augmentation on every rank."""

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import multiprocessing
from torch.utils.data import Dataset

from aikido_torch.data._seeds import SeededDataset, read_seeded, sample_seed
from aikido_torch.reassign._plan import Item, place_of

__all__ = ["ItemReader"]

# Items that each process reads ahead of the training thread.
_AHEAD = 2


@dataclass(frozen=True)
class _Source:
    dataset: Dataset[Any]
    seed: int
    collate: Callable[[list[Any]], Any]

    def seeds_of(self, item: Item) -> list[int]:
        epoch, _ = place_of(item.label)
        return [sample_seed(self.seed, epoch, index) for index in item.indices]

    def read(self, indices: list[int], seeds: list[int]) -> Any:
        return self.collate(read_seeded(self.dataset, indices, seeds))


class ItemReader:
    """Reader of the items of a plan. For the training thread only.

    Args:
        dataset: a dataset with a length. A `SeededDataset` keeps its seed.
        seed: of the random numbers of an augmentation.
        collate: makes the data of an item from the list of its samples.
        num_workers: processes that read the items that `expect` names; 0: none.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        seed: int,
        collate: Callable[[list[Any]], Any],
        num_workers: int = 0,
    ) -> None:
        if isinstance(dataset, SeededDataset):
            seed, dataset = dataset.seed, dataset.dataset
        self._source = _Source(dataset, seed, collate)
        self._most_ahead = num_workers * _AHEAD
        self._seeds: dict[int, list[int]] = {}  # of the expected items, by label
        self._expected: list[Item] = []  # not begun, last one first
        self._ahead: dict[int, Future[Any]] = {}  # by label
        self._pool: ProcessPoolExecutor | None = None
        if num_workers:
            self._pool = ProcessPoolExecutor(
                num_workers,
                mp_context=multiprocessing.get_context(),
                initializer=_begin_process,
                initargs=(self._source,),
            )
            end = self._pool.shutdown
            weakref.finalize(self, end, wait=False, cancel_futures=True)

    def sample(self, index: int) -> Any:
        """A sample as the first epoch has it."""
        return SeededDataset(self._source.dataset, seed=self._source.seed)[index]

    def expect(self, items: Sequence[Item], likely: Sequence[Item] = ()) -> None:
        """These items are probably read next, in this order.

        Args:
            items: own items.
            likely: items of other ranks that this rank may take over. Processes read
                them after the own items.
        """
        expected = [*items, *likely] if self._pool else items
        self._seeds = {item.label: self._source.seeds_of(item) for item in expected}
        self._expected = [*reversed(expected)]
        for label in self._ahead.keys() - self._seeds.keys():
            self._ahead.pop(label).cancel()
        self._read_ahead()

    def read(self, item: Item, owner: int | None = None) -> Any:
        """Data of the item, with any owner: each rank reads all items.

        The generators of torch, NumPy and `random` may have other states afterwards.
        """
        future = self._ahead.pop(item.label, None)
        self._read_ahead()
        if future is not None:
            return future.result()
        seeds = self._seeds.get(item.label) or self._source.seeds_of(item)
        return self._source.read(item.indices, seeds)

    def _read_ahead(self) -> None:
        if self._pool is None:
            return
        while self._expected and len(self._ahead) < self._most_ahead:
            item = self._expected.pop()
            self._ahead[item.label] = self._pool.submit(
                _read_in_process, item.indices, self._seeds[item.label]
            )


# Source of the data in a process that reads ahead.
_given: _Source


def _begin_process(source: _Source) -> None:
    global _given
    _given = source
    torch.set_num_threads(1)


def _read_in_process(indices: list[int], seeds: list[int]) -> Any:
    return _given.read(indices, seeds)
