# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Reads the samples of an item, with the same augmentation on every rank."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset

from aikido_torch.data._seeds import SeededDataset
from aikido_torch.reassign._plan import Plan, place_of

__all__ = ["ItemReader"]


class ItemReader:
    """Reader of the items of a plan.

    Args:
        dataset: a dataset with a length. A `SeededDataset` keeps its seed.
        seed: of the random numbers of an augmentation.
        collate: makes the data of an item from the list of its samples.
    """

    def __init__(
        self, dataset: Dataset[Any], seed: int, collate: Callable[[list[Any]], Any]
    ) -> None:
        if isinstance(dataset, SeededDataset):
            seed, dataset = dataset.seed, dataset.dataset
        self._dataset = SeededDataset(dataset, seed=seed)
        self._collate = collate

    def sample(self, index: int) -> Any:
        """A sample as the first epoch has it."""
        self._dataset.set_epoch(0)
        return self._dataset[index]

    def read(self, plan: Plan, label: int) -> tuple[Any, list[int]]:
        """Data of the item, and the indices of its samples."""
        indices = plan.indices_of(label)
        self._dataset.set_epoch(place_of(label)[0])
        return self._collate([self._dataset[index] for index in indices]), indices
