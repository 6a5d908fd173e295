# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.reassign._pending import PendingItems


def test_own_items_of_a_skipped_contribution_are_issued_again():
    pending = PendingItems(reissues=True)
    pending.send(3, [7, 8])
    pending.send(4, [9])
    assert pending.steps_without_outcome() == [3, 4]
    pending.on_outcome(3, has_counted=False)
    pending.on_outcome(4, has_counted=True)
    assert pending.steps_without_outcome() == []
    assert pending.take(5) == [7, 8]
    assert pending.take(5) == []
    assert (pending.num_lost, pending.num_issued_again, pending.num_dropped) == (
        2,
        2,
        0,
    )


def test_a_step_has_at_most_twice_its_own_items():
    pending = PendingItems(reissues=True)
    pending.lose(range(10))
    assert pending.take(3) == [0, 1, 2]
    assert pending.take(0) == [3]
    assert len(pending) == 6


def test_dropped_items_are_counted():
    pending = PendingItems(reissues=False)
    pending.lose([1, 2])
    assert pending.take(4) == []
    assert (pending.num_lost, pending.num_dropped) == (2, 2)


def test_items_in_doubt_are_not_issued_again():
    pending = PendingItems(reissues=True)
    pending.drop([1])
    assert pending.take(4) == []
    assert (pending.num_lost, pending.num_dropped) == (1, 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_each_lost_item_is_issued_once(moves):
    pending = PendingItems(reissues=True)
    lost, issued = [], []
    for num_lost, num_own in moves:
        new = range(len(lost), len(lost) + num_lost)
        pending.lose(new)
        lost += new
        issued += pending.take(num_own)
    while len(pending):
        issued += pending.take(1)
    assert issued == lost
    assert pending.num_issued_again == len(lost)


def test_the_items_can_be_resumed():
    pending = PendingItems(reissues=True)
    pending.lose([4, 5])
    other = PendingItems(reissues=True)
    other.resume(pending.labels)
    assert other.take(2) == [4, 5]
