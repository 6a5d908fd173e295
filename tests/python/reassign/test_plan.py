# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

from aikido_torch.reassign._plan import Item, Plan, label_of, likely_taken, place_of


def plan_of(num_samples=48, num_ranks=3, items=6, micro=2, costs=None, **options):
    values = {"shuffle": True, "seed": 0, "drop_last": True} | options
    return Plan(
        num_samples=num_samples,
        batch_size=items * micro,
        micro_batch_size=micro,
        num_ranks=num_ranks,
        costs=costs,
        **values,
    )


@st.composite
def plans(draw):
    num_ranks = draw(st.integers(1, 9))
    items = draw(st.integers(num_ranks, 30))
    micro = draw(st.integers(1, 4))
    num_samples = draw(st.integers(items * micro, 4 * items * micro))
    costs = None
    if draw(st.booleans()):
        values = st.sampled_from([0.5, 1.0, 2.0, 3.0, 100.0])
        costs = draw(st.lists(values, min_size=num_samples, max_size=num_samples))
    return plan_of(
        num_samples,
        num_ranks,
        items,
        micro,
        costs=None if costs is None else np.asarray(costs),
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
        drop_last=draw(st.booleans()),
    )


@given(plans(), st.integers(0, 1000))
def test_the_lists_of_an_epoch_have_each_sample_once(plan, epoch):
    counts = np.zeros(plan.num_samples, dtype=int)
    for step in range(plan.steps_per_epoch):
        lists = plan.lists_of(epoch, step)
        assert len(lists) == plan.num_ranks
        labels = [label for each in lists for label in each]
        assert sorted(labels) == plan.items_of(epoch, step)
        for label in labels:
            assert place_of(label)[0] == epoch
            indices = plan.indices_of(label)
            assert len(indices) == plan.size_of(label) * plan.micro_batch_size
            cost = plan.size_of(label)
            if plan.costs is not None:
                cost = pytest.approx(sum(plan.costs[indices]))
            assert plan.item(label) == Item(label, indices, plan.size_of(label), cost)
            counts[indices] += 1
    if plan.drop_last:
        assert counts.max() == 1
        assert counts.sum() == plan.steps_per_epoch * plan.batch_size
    else:
        assert (counts == 1).all()


@given(plans())
def test_equal_counts_differ_by_one_item_and_lie_in_order(plan):
    plan = plan_of(plan.num_samples, plan.num_ranks, plan.items_per_step)
    for step in range(plan.steps_per_epoch):
        lists = plan.lists_of(0, step)
        lengths = [len(each) for each in lists]
        assert max(lengths) - min(lengths) <= 1
        assert [*chain(*lists)] == plan.items_of(0, step)


@given(plans())
def test_the_longest_list_is_at_most_a_third_longer_than_the_best_bound(plan):
    """Graham's bound: 4/3 of the optimum, which is no less than these two numbers."""
    costs = plan.costs if plan.costs is not None else np.ones(plan.num_samples)
    plan = plan_of(
        plan.num_samples,
        plan.num_ranks,
        plan.items_per_step,
        plan.micro_batch_size,
        costs=costs,
    )
    for step in range(plan.steps_per_epoch):
        lists = plan.lists_of(0, step)
        loads = [sum(map(plan.cost_of, each)) for each in lists]
        items = sorted(map(plan.cost_of, plan.items_of(0, step)), reverse=True)
        n = plan.num_ranks
        bound = max(sum(items) / n, items[0])
        if len(items) > n:  # two of the n + 1 largest items are on one rank
            bound = max(bound, items[n - 1] + items[n])
        assert max(loads) <= bound * 4 / 3 + 1e-9


def test_lists_with_costs_begin_with_the_largest_item():
    costs = np.arange(1.0, 49.0)
    plan = plan_of(costs=costs, shuffle=False)
    assert plan.cost_of(label_of(0, 0)) == 3.0
    assert plan.lists_of(2, 0) == [
        [label_of(2, 5), label_of(2, 0)],
        [label_of(2, 4), label_of(2, 1)],
        [label_of(2, 3), label_of(2, 2)],
    ]


@given(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 32) - 1))
def test_a_label_names_epoch_and_number(epoch, number):
    assert place_of(label_of(epoch, number)) == (epoch, number)
    assert 0 <= label_of(epoch, number) < 1 << 63


def test_the_permutation_equals_that_of_a_distributed_sampler():
    plan = plan_of(seed=5)
    sampler = DistributedSampler(torch.zeros(48), num_replicas=1, rank=0, seed=5)
    sampler.set_epoch(3)
    labels = [label for step in range(4) for label in plan.items_of(3, step)]
    assert [i for label in labels for i in plan.indices_of(label)] == list(sampler)


@pytest.mark.parametrize(("drop_last", "steps"), [(True, 4), (False, 5)])
def test_a_last_step_that_is_not_whole(drop_last, steps):
    plan = plan_of(51, drop_last=drop_last)
    assert plan.steps_per_epoch == steps
    if not drop_last:
        assert plan.lists_of(0, 4) == [[24], [25], []]
        assert [plan.size_of(24), plan.size_of(25)] == [1.0, 0.5]
        assert len(plan.indices_of(25)) == 1


def test_likely_items_are_at_the_tails_of_the_same_owners():
    lists = [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert likely_taken(lists, []) == []
    assert likely_taken(lists, [1, 2, 1]) == [4, 5, 7]
    assert likely_taken(lists, [2] * 5) == [6, 7]
    assert likely_taken([[0], [], [1]], [1]) == []
