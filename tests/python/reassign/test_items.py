# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch.reassign._items import OwnItems


def items_of(*labels):
    items = OwnItems(2)
    items.begin(1, list(labels), [1.0] * len(labels))
    return items


def test_own_items_are_claimed_in_order_and_the_last_one_is_known():
    items = items_of(7, 5, 9)
    found = []
    while (claim := items.claim(1.0)) is not None:
        found.append((claim.owner, claim.index, claim.label, claim.is_last))
        items.finished(0.1)
    assert found == [(2, 0, 7, False), (2, 1, 5, False), (2, 2, 9, True)]
    assert items.leave() == []


def test_a_rank_without_items_has_nothing_to_claim():
    assert items_of().claim(1.0) is None


def test_a_rank_that_leaves_gets_the_items_that_it_has_not_computed():
    items = items_of(7, 5, 9)
    items.claim(1.0)
    items.finished(0.1)
    items.claim(1.0)
    assert items.leave() == [(2, 1, 5), (2, 2, 9)]
    assert items.claim(1.0) is None
    assert items.leave() == []


def test_nothing_is_lost_or_taken():
    items = items_of(1)
    items.outcome(1, [0])
    items.stop()
    assert list(items.take_losses()) == []
    assert (items.report().num_given, list(items.report().taken)) == (0, [])
