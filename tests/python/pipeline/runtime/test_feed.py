# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import itertools

import pytest
import torch

from aikido_torch.errors import ConfigError
from aikido_torch.pipeline.runtime._feed import (
    BatchFeed,
    LoaderFeed,
    Order,
    endless,
    pair_of,
)


@pytest.mark.parametrize(
    ("rows", "sizes"), [(8, [2, 2, 2, 2]), (6, [2, 2, 1, 1]), (2, [1, 1, 0, 0])]
)
def test_a_batch_is_cut_into_micro_batches_that_differ_by_at_most_a_row(rows, sizes):
    x, y = torch.arange(rows), torch.arange(rows) * 10
    feed = BatchFeed((x, y), y, 4)
    for b, size in enumerate(sizes):
        (first, second), weight = feed.inputs(b)
        assert weight == size / sizes[0]
        assert torch.equal(first * 10, second)
        assert torch.equal(feed.target(b, weight), second)
    assert torch.equal(torch.cat([feed.inputs(b)[0][0] for b in range(4)]), x)


@pytest.mark.parametrize(
    ("inputs", "targets", "text"),
    [
        ([1, 2], None, "inputs are a list; pass a tensor or a tuple of tensors."),
        (torch.tensor(1), None, r"inputs have tensors of \[\[\]\]; dimension 0"),
        (
            (torch.ones(2), torch.ones(3)),
            None,
            r"inputs have tensors of \[\[2\], \[3\]\]",
        ),
        (torch.ones(0, 3), None, "the batch has no rows"),
        (None, "x", "targets are a str; pass"),
    ],
)
def test_arguments_that_are_no_batch_are_refused(inputs, targets, text):
    with pytest.raises(ConfigError, match=f"^{text}"):
        BatchFeed(inputs, targets, 2)


def test_targets_must_have_as_many_rows_as_inputs():
    feed = BatchFeed(None, torch.ones(5), 4)  # 2 1 1 1
    with pytest.raises(
        ConfigError, match=r"^micro-batch 1 has 1 rows of targets, 0\.5 "
    ):
        feed.target(1, 1.0)


def loader(*rows):
    return [(torch.full((r, 1), i), torch.full((r,), i)) for i, r in enumerate(rows)]


def test_a_loader_gives_one_micro_batch_at_a_time_and_starts_again():
    feed = LoaderFeed(loader(4, 4, 2), 5, {0, 2}, {1, 2})
    feed.begin_run()
    (x,), weight = feed.inputs(0)
    assert (x[0].item(), weight) == (0, 1.0)
    assert feed.target(1, 1.0)[0].item() == 1
    (x,), weight = feed.inputs(2)
    assert (x[0].item(), weight) == (2, 0.5)
    assert feed.target(2, 0.5)[0].item() == 2
    feed.end_run(3)
    feed.begin_run()
    assert feed.inputs(0)[0][0][0].item() == 0
    assert feed.target(1, 1.0)[0].item() == 1
    assert feed.inputs(2) == ((), 0.0)  # only five batches were requested
    assert feed.target(2, 0.0) is None


def test_batches_of_other_replicas_are_skipped():
    taken = []

    def noted():
        for pair in loader(1, 1, 1, 1):
            taken.append(pair)
            yield pair

    feed = LoaderFeed(noted(), 4, {1}, set())
    feed.begin_run()
    assert feed.inputs(1)[0][0][0].item() == 1
    assert len(taken) == 2  # no more than needed
    feed.end_run(4)
    assert len(taken) == 4


def test_loaders_with_other_items_are_refused():
    assert pair_of([1, 2]) == (1, 2)
    with pytest.raises(ConfigError, match=r"^the loader gave a Tensor; it takes one"):
        pair_of(torch.ones(2))
    assert list(itertools.islice(endless([1, 2]), 5)) == [1, 2, 1, 2, 1]
    with pytest.raises(
        ConfigError, match=r"^the loader is at its end and gives no more"
    ):
        list(endless(iter([1, 2])))
    feed = LoaderFeed(None, 2, {0}, set())
    feed.begin_run()
    with pytest.raises(
        ConfigError, match=r"^this rank has the first or the last stage"
    ):
        feed.inputs(0)
    feed = LoaderFeed(loader(1), 2, set(), {0})
    feed.begin_run()
    with pytest.raises(ConfigError, match=r"^the loader has ended at micro-batch 0 on"):
        feed.target(0, 0.0)


def mark_of(*targets):
    order = Order()
    for target in targets:
        order.note(target)
    return order.mark


def test_an_order_of_batches_is_recognized_by_their_targets():
    a, b = torch.arange(4), torch.arange(4) + 1
    assert mark_of(a, b) == mark_of(a.clone(), b) != mark_of(b, a)
    assert mark_of(a) != mark_of(a.view(2, 2))
    assert mark_of((a, b)) != mark_of((a, a))
    large = torch.zeros(3000, 2)
    assert mark_of(large[:, :1]) == mark_of(torch.zeros(3000, 1))
    assert mark_of(torch.tensor(1.0), torch.ones(2, dtype=torch.bfloat16)) is not None
    for none in (None, "x", [1]):
        assert mark_of(a, none, b) is None


def test_ranks_with_different_orders_are_named():
    assert Order.differing({0: 5, 1: None, 3: 5}) is None
    assert Order.differing({0: None, 1: None}) is None
    assert Order.differing({0: None, 1: 7, 2: 7, 4: 8}) == (1, 4)
