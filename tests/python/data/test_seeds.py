# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset

from aikido_torch.data import SeededDataset, seed_of
from aikido_torch.data._seeds import (
    item_seed,
    read_seeded,
    sample_seed,
    seed_all,
    seed_torch,
)
from aikido_torch.errors import ConfigError


class Augmented(Dataset):
    """Each sample has noise from every generator that users call."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        noise = [float(torch.rand(())), float(np.random.rand()), random.random()]
        return torch.tensor([float(index), *noise], dtype=torch.float64)


PARTS = st.integers(0, 1 << 40)


@given(st.tuples(PARTS, PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS, PARTS))
def test_each_step_of_each_data_shard_has_its_own_seed(one, other):
    assert 0 <= seed_of(*one) < 1 << 63
    assert seed_of(*one) == seed_of(*one)
    assert (seed_of(*one) == seed_of(*other)) == (one == other)


def test_items_and_steps_have_different_seeds():
    assert item_seed(1, 2, 3) == item_seed(1, 2, 3)
    seeds = {
        item_seed(*parts) for parts in [(1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0)]
    }
    assert len(seeds | {seed_of(1, 2, 3, 0)}) == 5


def test_a_seed_sets_the_generator_of_torch():
    seed_torch(5)
    drawn = torch.rand(2)
    assert torch.equal(drawn, torch.rand(2, generator=torch.Generator().manual_seed(5)))


def test_a_seed_sets_all_generators():
    def drawn():
        seed_all((1 << 62) + 5)
        return float(torch.rand(())), float(np.random.rand()), random.random()

    assert drawn() == drawn()


def test_samples_are_those_of_a_seeded_dataset():
    dataset = SeededDataset(Augmented(), seed=5)
    dataset.set_epoch(2)
    seeds = [sample_seed(5, 2, index) for index in (7, 3)]
    samples = read_seeded(Augmented(), [7, 3], seeds)
    for own, other in zip(samples, dataset.__getitems__([7, 3]), strict=True):
        assert torch.equal(own, other)


def test_seeds_do_not_change_between_machines_or_versions():
    assert seed_of(0, 0, 0, 0) == 2877603141659379089
    assert seed_of(7, 1, 250, 3) == 9191158038314748967


def read(dataset, **options):
    return torch.cat(list(DataLoader(dataset, batch_size=4, **options)))


def test_samples_have_the_same_bits_wherever_they_are_read():
    dataset = SeededDataset(Augmented(), seed=5)
    here = read(dataset)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert torch.equal(read(dataset), here)
    for options in (
        {"num_workers": 1},
        {"num_workers": 2, "prefetch_factor": 3},
        {"num_workers": 2, "multiprocessing_context": "spawn"},
    ):
        assert torch.equal(read(dataset, **options), here), options
    # The order of reading does not matter.
    assert torch.equal(torch.stack([dataset[i] for i in (7, 3)]), here[[7, 3]])
    # No two samples have the same noise.
    assert all(len(set(column.tolist())) == 24 for column in here.T)


def test_each_epoch_and_each_seed_has_its_own_samples():
    dataset = SeededDataset(Augmented(), seed=5)
    first = read(dataset)
    dataset.set_epoch(1)
    assert not (read(dataset)[:, 1:] == first[:, 1:]).any()
    assert not (read(SeededDataset(Augmented(), seed=6))[:, 1:] == first[:, 1:]).any()
    dataset.set_epoch(0)
    assert torch.equal(read(dataset), first)


def test_persistent_processes_see_the_next_epoch():
    dataset = SeededDataset(Augmented())
    loader = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        found = torch.cat(list(loader))
        assert torch.equal(found, read(dataset))


def test_generators_are_restored_afterwards():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = (random.random(), np.random.rand(), torch.rand(()))
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    SeededDataset(Augmented())[3]
    assert (random.random(), np.random.rand(), torch.rand(())) == expected


class _Stream(IterableDataset):
    def __iter__(self):
        return iter([1])


class _Silent(Dataset):
    def __len__(self):
        raise TypeError("not known")


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (_Stream(), "SeededDataset: the dataset, of type _Stream, has no length"),
        (iter([1]), "of type list_iterator, has no length, so a backup cannot"),
        (_Silent(), r"of type _Silent, does not tell its length \(not known\)"),
        ([], "of type list, is empty"),
    ],
)
def test_a_dataset_without_a_length_is_refused(dataset, text):
    with pytest.raises(ConfigError, match=text):
        SeededDataset(dataset)


def test_a_batch_has_the_samples_that_are_read_one_by_one():
    dataset = SeededDataset(Augmented(), seed=3)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    batch = dataset.__getitems__([5, 2, 5])
    for sample, index in zip(batch, [5, 2, 5], strict=True):
        assert torch.equal(sample, dataset[index])
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
