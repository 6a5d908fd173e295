# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.recovery._votes import Ends, VoteResult, Votes


def votes_of(own, digests, step=100):
    """Votes with the digest of each rank; "-" was not received."""
    votes = Votes(own, len(digests))
    for rank, digest in enumerate(digests):
        if digest != "-":
            votes.add(rank, step, digest)
    return votes


@pytest.mark.parametrize(
    ("digests", "agreed", "differing"),
    [
        ("aaaa", (0, 1, 2, 3), ()),
        ("aaba", (0, 1, 3), (2,)),
        ("baaa", (1, 2, 3), (0,)),
        # Equally frequent: the digest of the lowest rank counts.
        ("abba", (0, 3), (1, 2)),
        ("abbc", (1, 2), (0, 3)),
        ("abcd", (0,), (1, 2, 3)),
        ("ab", (0,), (1,)),
        ("aa-", (0, 1), ()),  # more than half need not wait for the others
    ],
)
def test_the_digest_that_most_ranks_have_counts(digests, agreed, differing):
    for own in (*agreed, *differing):
        verdict = VoteResult(100, agreed, differing)
        assert votes_of(own, digests).decide() == [verdict]


@pytest.mark.parametrize("digests", ["a--", "ab-", "-aa", "ab--"])
def test_without_a_majority_or_the_own_digest_the_rest_is_waited_for(digests):
    assert votes_of(0, digests).decide() == []


def test_what_has_not_come_until_the_next_digest_does_not_count():
    votes = votes_of(1, "ab-")
    votes.add(1, 200, "c")
    assert votes.decide() == [VoteResult(100, (0,), (1,))]
    votes.add(2, 100, "b")  # too late
    assert votes.decide() == []
    votes.add(0, 200, "c")
    assert votes.decide() == [VoteResult(200, (0, 1), ())]


def test_a_step_that_this_rank_has_skipped_through_gets_no_verdict():
    votes = votes_of(2, "aa-")
    votes.add(2, 200, "c")
    assert votes.decide() == []
    votes.add(0, 200, "c")
    assert votes.decide() == [VoteResult(200, (0, 2), ())]


def test_a_majority_is_decided_once():
    votes = votes_of(0, "aaba")
    assert len(votes.decide()) == 1
    assert votes.decide() == []


def ends_of(own, ends):
    """Ends from (steps, digest) of each rank; None: not received."""
    found = Ends(own, len(ends))
    for rank, end in enumerate(ends):
        if end is not None:
            found.add(rank, *end)
    return found


@pytest.mark.parametrize(
    ("ends", "gone", "agreed", "differing"),
    [
        ([(60, "a")] * 3, (), (0, 1, 2), ()),
        ([(60, "a"), (60, "b"), (60, "a")], (), (0, 2), (1,)),
        ([(60, "b"), (60, "a"), (60, "a")], (), (1, 2), (0,)),
        ([(60, "a"), (60, "b")], (), (0,), (1,)),
        # More than half need not wait for the others, and a rank that has left does not
        # count.
        ([(60, "a"), (60, "a"), None], (), (0, 1), ()),
        ([None, (60, "b"), (60, "c")], (0,), (1,), (2,)),
        ([(60, ""), (60, "b"), (60, "c")], (0,), (1,), (2,)),
        # A rank with fewer steps is not compared.
        ([(60, "a"), (57, "b"), (60, "a")], (), (0, 2), ()),
    ],
)
def test_the_ranks_with_the_most_steps_are_compared(ends, gone, agreed, differing):
    for own in (*agreed, *differing):
        verdict = VoteResult(60, agreed, differing)
        assert ends_of(own, ends).verdict(gone) == verdict


@pytest.mark.parametrize(
    ("own", "ends"),
    [
        (1, [None, (60, "b"), (60, "c")]),
        (0, [(60, "a"), None, None]),
        (1, [(60, "a"), (57, "a"), (60, "a")]),
        (0, [(60, ""), (60, "a"), (60, "a")]),
    ],
)
def test_without_a_majority_or_the_most_steps_there_is_no_verdict(own, ends):
    assert ends_of(own, ends).verdict(()) is None


def test_the_last_end_of_a_rank_counts_and_silence_is_awaited():
    ends = ends_of(0, [(60, "a"), (60, "b"), None])
    assert ends.awaited(()) == [2]
    assert ends.awaited((2,)) == []
    ends.add(1, 60, "a")
    assert ends.verdict(()) == VoteResult(60, (0, 1), ())
    assert ends.ahead() == (60, [0, 1])
