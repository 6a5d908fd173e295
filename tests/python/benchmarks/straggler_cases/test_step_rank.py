# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

import pytest

from aikido_torch.straggler import SkipStraggler, WaitAll
from benchmarks.straggler_cases import op_rank, step_rank
from benchmarks.straggler_cases.plan import Block


def outcome(*shards, contributors=(0, 1)):
    return SimpleNamespace(
        contributors=list(contributors),
        shards=[
            SimpleNamespace(num_elements=elements, contributors=list(ranks))
            for elements, ranks in shards
        ],
    )


def test_a_rank_has_contributed_the_elements_whose_sums_include_it():
    # Rank 1 is in 30 of 40 elements of the first call, and in all 60 of the second.
    calls = [outcome((10, (0,)), (30, (0, 1))), outcome((60, (0, 1)))]
    assert step_rank.contributed(calls, 2) == pytest.approx([1.0, 0.9])


def test_a_call_without_shards_has_its_contributors():
    assert step_rank.contributed([outcome(contributors=(1,))], 2) == [0.0, 1.0]


def test_steps_take_as_many_outcomes_as_they_have_calls():
    handle = SimpleNamespace(
        outcomes=[outcome((1, (0, 1))), outcome((1, (0,))), outcome((1, (0,)))],
        by_step=[SimpleNamespace(num_calls=calls) for calls in (2, 0, 1)],
    )
    found = step_rank.contributed_by_step(handle, 2)
    assert found == [[1.0, 0.5], None, [1.0, 0.0]]


def policy_of(arm, **options):
    return op_rank.policy_of(Block(name="a", arm=arm, ops=1, **options))


def test_arms_have_their_policies():
    assert policy_of("gloo3") is None
    assert policy_of("plain") is None
    assert policy_of("strict") == WaitAll()
    assert policy_of("exact") == WaitAll(rebalance=True)
    assert policy_of("skip") == SkipStraggler()
    fixed = policy_of("fixed", deadline_ms=7.0)
    assert (fixed.floor_ms, fixed.ceiling_ms) == (7.0, 7.0)
    fixed.native()  # raises if a value is out of its range
