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
    item = PLAN.item(label_of(3, 4))
    data = ItemReader(Noisy(), 7, default_collate).read(item)
    assert data.floor().tolist() == item.indices
    other = ItemReader(Noisy(), 7, default_collate)
    other.read(PLAN.item(label_of(5, 1)))
    assert torch.equal(other.read(item), data)
    assert not torch.equal(ItemReader(Noisy(), 8, default_collate).read(item), data)


def test_the_augmentation_differs_between_epochs():
    reader = ItemReader(Noisy(), 0, list)
    items = [PLAN.item(label_of(epoch, 0)) for epoch in range(30)]
    in_order = [
        dict(zip(item.indices, reader.read(item), strict=True)) for item in items
    ]
    index = next(iter(in_order[0]))
    values = [float(each[index]) for each in in_order if index in each]
    assert len(set(values)) == len(values) > 1


def test_a_seeded_dataset_keeps_its_seed():
    item = PLAN.item(label_of(0, 1))
    seeded = ItemReader(SeededDataset(Noisy(), seed=4), 9, default_collate)
    plain = ItemReader(Noisy(), 4, default_collate)
    assert torch.equal(seeded.read(item), plain.read(item))


def test_a_sample_is_that_of_the_first_epoch_and_leaves_the_generators_alone():
    reader = ItemReader(Noisy(), 0, list)
    item = PLAN.item(0)
    first, _ = reader.read(item)
    reader.read(PLAN.item(label_of(9, 0)))
    before = torch.get_rng_state()
    assert reader.sample(item.indices[0]) == first
    assert torch.equal(torch.get_rng_state(), before)


class Counted(Noisy):
    """Tells the process that reads."""

    def __getitem__(self, index):
        return super().__getitem__(index), os.getpid()


def test_processes_read_the_same_data_ahead():
    items = [PLAN.item(label_of(epoch, n)) for epoch in (0, 4) for n in range(6)]
    plain = ItemReader(Counted(), 7, default_collate)
    reader = ItemReader(Counted(), 7, default_collate, num_workers=2)
    reader.expect(items)
    assert len(reader._ahead) == 4
    pids = set()
    for item in items[:8]:
        data, pid = reader.read(item)
        assert torch.equal(data, plain.read(item)[0])
        pids |= {*pid.tolist()}
    assert os.getpid() not in pids
    # An item that was not expected, such as an item of another rank.
    other = PLAN.item(label_of(9, 1))
    data, pid = reader.read(other)
    assert torch.equal(data, plain.read(other)[0])
    assert {*pid.tolist()} == {os.getpid()}
    reader.expect([])
    assert reader._ahead == {}


def test_processes_read_likely_items_after_the_own_ones():
    items = [PLAN.item(label_of(0, number)) for number in range(6)]
    reader = ItemReader(Counted(), 7, default_collate, num_workers=1)
    own, likely = items[:3], items[3:5]
    reader.expect(own, likely)
    assert [*reader._ahead] == [item.label for item in own[:2]]
    for item in (*own, likely[1]):
        _, pid = reader.read(item)
        assert os.getpid() not in pid.tolist()
    assert [*reader._ahead] == [likely[0].label]
    reader.expect([])
    assert reader._ahead == {}


def test_without_processes_likely_items_are_no_work():
    reader = ItemReader(Noisy(), 7, default_collate)
    reader.expect([PLAN.item(0)], [PLAN.item(1)])
    assert [*reader._seeds] == [0]


def fail(index):
    raise ArithmeticError(index)


def test_an_error_of_a_process_is_raised():
    class Failing(Noisy):
        def __getitem__(self, index):
            return fail(index)

    reader = ItemReader(Failing(), 0, default_collate, num_workers=1)
    reader.expect([PLAN.item(0)])
    with pytest.raises(ArithmeticError):
        reader.read(PLAN.item(0))
