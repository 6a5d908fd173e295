# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from aikido_torch.reassign._plan import label_of
from aikido_torch.reassign._proof import Proof, RankLists


def lists_of(*ranks):
    return {
        rank: RankLists(begun=begun, computed=computed)
        for rank, (begun, computed) in enumerate(ranks)
    }


def test_a_partition_is_right():
    proof = Proof()
    assert proof.check(0, lists_of(([0, 1], [0, 1, 3]), ([2, 3], [2]))) == ""
    assert proof.check(1, lists_of(([4], [4]), ([5], [5]))) == ""
    assert (proof.num_counted, proof.num_missing) == (6, 0)


def test_an_item_that_two_ranks_computed_is_named():
    label = label_of(2, 9)
    proof = Proof()
    found = proof.check(5, lists_of(([label], [label]), ([], []), ([], [label])))
    assert found == (
        "Micro-batch 9 of epoch 2 counts twice: rank 0 computed it in step 5, and rank "
        "2 in step 5."
    )


def test_an_item_that_counts_in_two_steps_is_named():
    proof = Proof()
    proof.check(0, lists_of(([1], [1]), ([2], [2])))
    found = proof.check(3, lists_of(([3], [3]), ([1], [1])))
    assert "rank 0 computed it in step 0, and rank 1 in step 3" in found


def test_an_item_that_is_issued_again_is_right():
    proof = Proof()
    # The helper of item 1 is no contributor.
    assert proof.check(0, {0: RankLists(begun=[0, 1], computed=[0])}) == ""
    assert proof.num_missing == 1
    for step in range(1, 50):
        again = RankLists(begun=[step + 10], computed=[step + 10], waiting=[1])
        assert proof.check(step, {0: again}) == ""
    assert proof.check(50, {0: RankLists(begun=[1], computed=[1])}) == ""
    assert proof.num_missing == 0


def test_an_item_that_is_not_issued_again_is_named():
    proof = Proof()
    proof.check(0, lists_of(([0, 1], [0])))
    found = ""
    for step in range(1, 100):
        found = proof.check(step, lists_of(([step + 10], [step + 10])))
        if found:
            break
    assert found == (
        "Micro-batch 1 of epoch 0 counts never: rank 0 began step 0 with it, no "
        "contributor computed it, and the rank does not issue it again."
    )
    assert step == 17


def test_an_item_of_a_late_rank_may_be_missing_for_long():
    proof = Proof()
    proof.check(0, lists_of(([0], [0]), ([1], [])))
    for step in range(1, 100):
        assert proof.check(step, lists_of(([step + 10], [step + 10]))) == ""
    assert proof.num_missing == 1


def test_a_dropped_item_is_not_awaited():
    proof = Proof()
    proof.check(0, lists_of(([0, 1], [0])))
    dropped = RankLists(begun=[5], computed=[5], num_dropped=1)
    assert proof.check(1, {0: dropped}) == ""
    assert proof.num_missing == 0
