# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import os

import pytest
import torch
from torch.utils.data import Dataset, default_collate

from aikido_torch.data import SeededDataset
from aikido_torch.reassign._plan import Plan, label_of
from aikido_torch.reassign._reader import ItemReader

PLAN = Plan(
    num_samples=12,
    batch_size=6,
    micro_batch_size=2,
    num_ranks=2,
    shuffle=True,
    seed=0,
    drop_last=True,
)


class Noisy(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index + torch.rand(())


def test_an_item_has_the_same_augmentation_on_each_reader():
    label = label_of(3, 4)
    data, indices = ItemReader(Noisy(), 7, default_collate).read(PLAN, label)
    assert indices == PLAN.indices_of(label)
    assert data.floor().tolist() == indices
    other = ItemReader(Noisy(), 7, default_collate)
    other.read(PLAN, label_of(5, 1))
    assert torch.equal(other.read(PLAN, label)[0], data)
    assert not torch.equal(
        ItemReader(Noisy(), 8, default_collate).read(PLAN, label)[0], data
    )


def test_the_augmentation_differs_between_epochs():
    reader = ItemReader(Noisy(), 0, list)
    in_order = [
        dict(zip(*reversed(reader.read(PLAN, label_of(epoch, 0))), strict=True))
        for epoch in range(30)
    ]
    index = next(iter(in_order[0]))
    values = [float(each[index]) for each in in_order if index in each]
    assert len(set(values)) == len(values) > 1


def test_a_seeded_dataset_keeps_its_seed():
    label = label_of(0, 1)
    seeded = ItemReader(SeededDataset(Noisy(), seed=4), 9, default_collate)
    plain = ItemReader(Noisy(), 4, default_collate)
    assert torch.equal(seeded.read(PLAN, label)[0], plain.read(PLAN, label)[0])


def test_reading_leaves_the_generators_alone():
    before = torch.get_rng_state()
    ItemReader(Noisy(), 0, default_collate).read(PLAN, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sample_is_that_of_the_first_epoch():
    reader = ItemReader(Noisy(), 0, list)
    (first, _), indices = reader.read(PLAN, 0)
    reader.read(PLAN, label_of(9, 0))
    assert reader.sample(indices[0]) == first


class Counted(Noisy):
    """Tells the process that reads."""

    def __getitem__(self, index):
        return super().__getitem__(index), os.getpid()


def test_processes_read_the_same_data_ahead():
    labels = [label_of(epoch, number) for epoch in (0, 4) for number in range(6)]
    plain = ItemReader(Counted(), 7, default_collate)
    reader = ItemReader(Counted(), 7, default_collate, num_workers=2)
    reader.expect(PLAN, labels)
    assert len(reader._ahead) == 4
    pids = set()
    for label in labels[:8]:
        (data, pid), indices = reader.read(PLAN, label)
        (expected, _), indices_expected = plain.read(PLAN, label)
        assert indices == indices_expected
        assert torch.equal(data, expected)
        pids |= {*pid.tolist()}
    assert os.getpid() not in pids
    # An item that was not expected, such as an item of another rank.
    (data, pid), _ = reader.read(PLAN, label_of(9, 1))
    assert torch.equal(data, plain.read(PLAN, label_of(9, 1))[0][0])
    assert {*pid.tolist()} == {os.getpid()}
    reader.expect(PLAN, [])
    assert reader._ahead == {}


def fail(index):
    raise ArithmeticError(index)


def test_an_error_of_a_process_is_raised():
    class Failing(Noisy):
        def __getitem__(self, index):
            return fail(index)

    reader = ItemReader(Failing(), 0, default_collate, num_workers=1)
    reader.expect(PLAN, [0])
    with pytest.raises(ArithmeticError):
        reader.read(PLAN, 0)
