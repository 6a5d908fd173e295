# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Batches of a user's DataLoader, for items that the session chooses."""

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from aikido_torch.data._seeds import length_of
from aikido_torch.errors import ConfigError

__all__ = ["Batches"]


class Batches:
    """Reader of any items of a loader's dataset. For the training thread only.

    The session divides the items, so the order of the loader's own sampler is not used.
    `shuffle` says whether the loader shuffles.

    Args:
        loader: a DataLoader with a batch size, over a dataset with a length.

    Attributes:
        num_items: length of the dataset.
        batch_size: most items in a batch.
        shuffle: True if the loader has a random order.

    Raises:
        ConfigError: the loader cannot be divided among members that come and go.
    """

    def __init__(self, loader: object) -> None:
        if not isinstance(loader, DataLoader):
            raise ConfigError(
                f"elastic.join: loader is a {type(loader).__name__}; give a "
                "torch.utils.data.DataLoader."
            )
        self.num_items = length_of(
            "elastic.join",
            loader.dataset,
            so="its items cannot be divided among members that come and go",
        )
        if loader.batch_size is None:
            raise ConfigError(
                "elastic.join: the loader has no batch_size, so the items of a step "
                "are not known; give DataLoader(dataset, batch_size=...)."
            )
        if not isinstance(loader.sampler, RandomSampler | SequentialSampler):
            raise ConfigError(
                f"elastic.join: the loader has a {type(loader.sampler).__name__}, but "
                "the session divides the items itself; give DataLoader(dataset, "
                "batch_size=..., shuffle=...) without a sampler."
            )
        self.batch_size: int = loader.batch_size
        self.shuffle = isinstance(loader.sampler, RandomSampler)
        self._dataset: Any = loader.dataset
        self._collate: Callable[[list[Any]], Any] = loader.collate_fn

    def read(self, indices: Sequence[int]) -> Any:
        """The batch of these items."""
        if hasattr(self._dataset, "__getitems__"):
            return self._collate(self._dataset.__getitems__(list(indices)))
        return self._collate([self._dataset[i] for i in indices])
