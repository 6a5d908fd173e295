# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Reads the samples of an item, with the same augmentation on every rank."""

import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import torch
from torch import multiprocessing
from torch.utils.data import Dataset

from aikido_torch.data._seeds import SeededDataset
from aikido_torch.reassign._plan import Plan, place_of

__all__ = ["ItemReader"]

# Items that each process reads ahead of the training thread.
_AHEAD = 2


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
        self._dataset = SeededDataset(dataset, seed=seed)
        self._collate = collate
        self._most_ahead = num_workers * _AHEAD
        self._expected: list[int] = []  # not begun, last one first
        self._ahead: dict[int, Future[Any]] = {}
        self._pool: ProcessPoolExecutor | None = None
        if num_workers:
            self._pool = ProcessPoolExecutor(
                num_workers,
                mp_context=multiprocessing.get_context(),
                initializer=_begin_process,
                initargs=(self._dataset, collate),
            )
            end = self._pool.shutdown
            weakref.finalize(self, end, wait=False, cancel_futures=True)

    def sample(self, index: int) -> Any:
        """A sample as the first epoch has it."""
        self._dataset.set_epoch(0)
        return self._dataset[index]

    def expect(self, plan: Plan, labels: Iterable[int]) -> None:
        """These items are probably read next, in this order."""
        self._expected = [*labels][::-1]
        for label in self._ahead.keys() - self._expected:
            self._ahead.pop(label).cancel()
        self._read_ahead(plan)

    def read(self, plan: Plan, label: int) -> tuple[Any, list[int]]:
        """Data of the item, and the indices of its samples."""
        indices = plan.indices_of(label)
        future = self._ahead.pop(label, None)
        self._read_ahead(plan)
        if future is not None:
            return future.result(), indices
        return _read(self._dataset, self._collate, place_of(label)[0], indices), indices

    def _read_ahead(self, plan: Plan) -> None:
        if self._pool is None:
            return
        while self._expected and len(self._ahead) < self._most_ahead:
            label = self._expected.pop()
            epoch, indices = place_of(label)[0], plan.indices_of(label)
            self._ahead[label] = self._pool.submit(_read_in_process, epoch, indices)


def _read(
    dataset: SeededDataset[Any],
    collate: Callable[[list[Any]], Any],
    epoch: int,
    indices: list[int],
) -> Any:
    dataset.set_epoch(epoch)
    return collate(dataset.__getitems__(indices))


# Dataset and collate function that this process was started with.
_given: tuple[SeededDataset[Any], Callable[[list[Any]], Any]]


def _begin_process(
    dataset: SeededDataset[Any], collate: Callable[[list[Any]], Any]
) -> None:
    global _given
    # Its own epoch: the dataset of the training thread shares its memory.
    own = SeededDataset(dataset.dataset, seed=dataset.seed)
    _given = (own, collate)
    torch.set_num_threads(1)


def _read_in_process(epoch: int, indices: list[int]) -> Any:
    return _read(*_given, epoch, indices)
