# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Batches of the user's loader, and loaders that are refused."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from aikido_torch.elastic._batches import Batches
from aikido_torch.errors import ConfigError


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


class Many(TensorDataset):
    """A dataset that reads several items at once."""

    def __getitems__(self, indices):
        return [(self.tensors[0][i] + 100,) for i in indices]


def test_any_items_are_read_with_the_collate_function_of_the_loader():
    data = TensorDataset(torch.arange(10))
    batches = Batches(DataLoader(data, batch_size=4))
    (found,) = batches.read((7, 1, 3))
    assert found.tolist() == [7, 1, 3]
    assert (batches.num_items, batches.batch_size, batches.shuffle) == (10, 4, False)
    own = Batches(DataLoader(data, batch_size=4, collate_fn=len, shuffle=True))
    assert own.read((1, 2)) == 2
    assert own.shuffle


def test_items_are_read_at_once_if_the_dataset_can():
    batches = Batches(DataLoader(Many(torch.arange(5)), batch_size=2))
    assert batches.read((2, 0))[0].tolist() == [102, 100]


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        ([1, 2], "loader is a list; give a torch.utils.data.DataLoader"),
        (DataLoader(Stream(), batch_size=2), "has no length"),
        (DataLoader([1, 2], batch_size=None), "the loader has no batch_size"),
        (
            DataLoader(
                [1, 2],
                batch_size=1,
                sampler=torch.utils.data.SubsetRandomSampler([0, 1]),
            ),
            "has a SubsetRandomSampler, but the session divides the items",
        ),
    ],
)
def test_a_loader_that_cannot_be_divided_is_refused(loader, text):
    with pytest.raises(ConfigError, match=text):
        Batches(loader)
