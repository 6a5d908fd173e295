# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rule for seeds: random numbers depend on the data and the step, not on the rank.

So a backup that computes the batch of a primary draws the same numbers, and its
gradient has the same bits.
"""

import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator, Sequence, Sized
from typing import Any, TypeVar

import torch
from torch.utils.data import Dataset, IterableDataset

from aikido_torch.errors import ConfigError

__all__ = [
    "SeededDataset",
    "item_seed",
    "length_of",
    "read_seeded",
    "sample_seed",
    "seed_all",
    "seed_of",
    "seed_torch",
]

T = TypeVar("T", covariant=True)


def seed_of(seed: int, epoch: int, step: int, data_shard: int) -> int:
    """The seed of all random numbers of one step for one data shard, 0 to 2**63 - 1.

    `aikido_torch.ddp` seeds torch's generators with it at the first forward of each
    step. Random numbers of the loop itself, such as the weights of a mixup, need a
    generator with this seed, or with a seed made from it.

    Args:
        seed: `seed` of the `BackupSampler`.
        epoch: argument of its `set_epoch`.
        step: its number on all ranks, from 0.
        data_shard: the data shard of the batch, `sampler.shard_of(step)`.
    """
    return _mixed("step", seed, epoch, step, data_shard)


def item_seed(seed: int, epoch: int, number: int) -> int:
    """The seed of all random numbers of one micro-batch, on any rank.

    Args:
        seed: `seed` of the `StepLoader`.
        epoch: epoch of the micro-batch.
        number: its number in the epoch.
    """
    return _mixed("item", seed, epoch, number)


def seed_torch(seed: int) -> None:
    """Seeds torch's default generators on the CPU and on all devices in use."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def seed_all(seed: int) -> None:
    """Seeds the generators of torch, of NumPy if it is imported, and of `random`."""
    _seed_host(seed)
    seed_torch(seed)


def _seed_host(seed: int) -> None:
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):  # if not imported, it draws no numbers
        numpy.random.seed(seed % (1 << 32))


def _mixed(*parts: object) -> int:
    text = " ".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1


_NO_BACKUP = "a backup cannot find the batches of the others in it"


def length_of(who: str, dataset: object, *, so: str = _NO_BACKUP) -> int:
    """Length of a dataset that can be divided into data shards.

    Args:
        who: name of the class, for the errors.
        dataset: argument of the user.
        so: consequence of a missing length, for the errors.

    Raises:
        ConfigError: it has no length, or is empty.
    """
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        raise ConfigError(
            f"{who}: the dataset, of type {kind}, has no length, so {so}; give one "
            "with __len__ and __getitem__."
        )
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise ConfigError(
            f"{who}: the dataset, of type {kind}, does not tell its length ({error}); "
            "give one with __len__ and __getitem__."
        ) from error
    if length < 1:
        raise ConfigError(f"{who}: the dataset, of type {kind}, is empty.")
    return length


class SeededDataset(Dataset[T]):
    """Samples of `dataset`, with the same random augmentation on every rank.

    Before each sample is read, the generators of torch (on the CPU), NumPy and `random`
    are seeded with `seed`, epoch and index. Afterwards they get their old states back.
    This holds in the processes of a DataLoader too. So a primary and its backup get the
    same augmented sample, and a different one in the next epoch.

    Args:
        dataset: a dataset with a length and with indices from 0.
        seed: the same on all ranks.

    Raises:
        ConfigError: the dataset has no length.
    """

    def __init__(self, dataset: Dataset[T], *, seed: int = 0) -> None:
        self.dataset = dataset
        self.seed = seed
        self._length = length_of("SeededDataset", dataset)
        # In shared memory: processes of a DataLoader that survive an epoch see the next
        # one.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The epoch of the samples."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """To be called before each epoch; a `BackupSampler` of this dataset does it."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> T:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[Any]) -> list[T]:
        """The samples of a batch. The generators get their old states back once."""
        with _kept_states():
            epoch = self.epoch
            seeds = [sample_seed(self.seed, epoch, index) for index in indices]
            return read_seeded(self.dataset, indices, seeds)


def sample_seed(seed: int, epoch: int, index: Any) -> int:
    """The seed of all random numbers of one sample of a `SeededDataset`."""
    return _mixed("sample", seed, epoch, int(index))


def read_seeded(
    dataset: Dataset[T], indices: Sequence[Any], seeds: Sequence[int]
) -> list[T]:
    """Samples, each read after its seed was set. The generators stay changed.

    To keep their states takes many times as long as to seed them.
    """
    found = []
    for index, seed in zip(indices, seeds, strict=True):
        _seed_host(seed)
        torch.default_generator.manual_seed(seed)
        found.append(dataset[index])
    return found


@contextlib.contextmanager
def _kept_states() -> Iterator[None]:
    numpy = sys.modules.get("numpy")
    before = random.getstate()
    numpy_before = numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(before)
        if numpy:
            numpy.random.set_state(numpy_before)
