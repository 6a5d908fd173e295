# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

import pytest

from aikido_torch.straggler._contributions import Contributions


def outcome_of(*shards, num_ranks=4):
    """An outcome with (elements, contributors) for each shard."""
    in_all = set(range(num_ranks)).intersection(*(ranks for _, ranks in shards))
    return SimpleNamespace(
        contributors=sorted(in_all),
        skipped=[r for r in range(num_ranks) if r not in in_all],
        shards=[SimpleNamespace(num_elements=n, contributors=r) for n, r in shards],
    )


ALL = [0, 1, 2, 3]


def test_calls_are_weighted_by_their_elements():
    tally = Contributions()
    tally.add(outcome_of((100, ALL)), 100)
    tally.add(outcome_of((300, [0, 1, 2])), 300)
    assert tally.num_ranks == 4
    assert [tally.share_of(r) for r in range(4)] == [1, 1, 1, 0.25]


def test_a_rank_can_contribute_to_some_shards_only():
    tally = Contributions()
    tally.add(outcome_of((50, ALL), (30, [0, 2, 3]), (20, [1, 2])), 100)
    shares = [tally.share_of(r) for r in range(4)]
    assert shares == pytest.approx([0.8, 0.7, 1, 0.8])


def test_a_strict_call_has_all_contributions_and_names_no_ranks():
    tally = Contributions()
    strict = SimpleNamespace(contributors=[], skipped=[], shards=[])
    tally.add(strict, 70)
    assert (tally.num_ranks, tally.num_elements, tally.share_of(2)) == (0, 70, 1)
    tally.add(outcome_of((10, ALL)), 10)
    tally.add(strict, 70)
    assert tally.num_ranks == 4


def test_backups_do_not_count_as_ranks_of_a_full_result():
    tally = Contributions()
    for num_ranks in (5, 4, 5):  # 4: a call that may skip, so the backup is not counted
        tally.add(outcome_of((10, range(num_ranks)), num_ranks=num_ranks))
    assert tally.num_ranks == 4


def test_a_rank_outside_the_group_contributes_nothing():
    tally = Contributions()
    outcome = SimpleNamespace(contributors=[0, 1], skipped=[2], shards=[])
    tally.add(outcome, 70)
    assert [tally.share_of(r) for r in range(3)] == [1, 1, 0]


def test_nothing_is_missing_before_the_first_call():
    assert Contributions().share_of(0) == 1
