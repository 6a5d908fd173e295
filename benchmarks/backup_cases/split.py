# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Data that differ between ranks: each data shard mostly has its own classes."""

import numpy as np
from torch.utils.data import Dataset


class ByClass(Dataset):
    """Dataset in which index i belongs to data shard i % N, as in a DistributedSampler.

    Without shuffling by the sampler; samples are shuffled within the data shard, by the
    epoch.

    Args:
        labels: labels of the samples.
        num_shards: N; samples that do not fill a batch position for all are dropped.
        own_share: share of a data shard's samples from its own range of classes; the
            others are of any class.
        seed: seed of the order.
    """

    def __init__(
        self, labels: np.ndarray, num_shards: int, *, own_share: float, seed: int
    ) -> None:
        self._num_shards, self._seed = num_shards, seed
        draw = np.random.default_rng((seed, 3))
        size = len(labels) // num_shards
        order = draw.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")][: size * num_shards]
        mixed = np.flatnonzero(draw.random(len(order)) >= own_share)
        order[mixed] = order[draw.permutation(mixed)]
        self._shards = order.reshape(num_shards, size)
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        draw = np.random.default_rng((self._seed, 4, epoch))
        self._order = np.stack([draw.permutation(shard) for shard in self._shards], 1)

    def __len__(self) -> int:
        return self._shards.size

    def __getitem__(self, index: int) -> int:
        """Index in `labels` of the sample."""
        return int(self._order[index // self._num_shards, index % self._num_shards])
