# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Carry without a group; tests/python/multiproc/test_carry.py has late ranks."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.errors import AbortedError, ConfigError
from aikido_torch.straggler import Carry

COUNT = 7
SHARDS = ((0, 3), (3, 2), (5, 2))  # first element, number of elements


class _Work:
    """A work that is complete with a mask for each shard, in progress, or failed."""

    def __init__(self, masks, ranks, is_completed=True, error=None):
        self.masks, self.ranks = masks, ranks
        self.is_over, self.error = is_completed, error

    def is_completed(self):
        return self.is_over

    def outcome(self):
        if self.error:
            raise self.error
        shards = [
            SimpleNamespace(first_element=first, num_elements=num, contributors=mask)
            for (first, num), mask in zip(SHARDS, self.masks, strict=True)
        ]
        skipped = [r for r in self.ranks if any(r not in m for m in self.masks)]
        return SimpleNamespace(shards=shards, skipped=skipped)


def reduce(tensors, masks):
    """The sum of a call with divisor "world", shard by shard."""
    result = torch.zeros(COUNT)
    for (first, num), mask in zip(SHARDS, masks, strict=True):
        part = slice(first, first + num)
        for rank in mask:
            result[part] += tensors[rank][part]
    return result


RANKS = range(3)
masks = st.lists(st.sampled_from(RANKS), unique=True).map(sorted)
step = st.tuples(
    st.lists(masks, min_size=len(SHARDS), max_size=len(SHARDS)),
    # Ranks that replay this step, and so contribute nothing.
    st.sets(st.sampled_from(RANKS)),
)


@given(st.lists(step, max_size=12), st.randoms(use_true_random=False))
def test_every_contribution_counts_once_or_is_pending(steps, random):
    carries = [Carry() for _ in RANKS]
    given_in_all, results = torch.zeros(COUNT), torch.zeros(COUNT)
    for masks, replaying in steps:
        masks = [[r for r in mask if r not in replaying] for mask in masks]
        work, tensors = _Work(masks, RANKS), {}
        for rank in set(RANKS) - replaying:
            # Integers, so that sums of floats are exact.
            tensor = torch.tensor(
                [float(random.randint(-99, 99)) for _ in range(COUNT)]
            )
            given_in_all += tensor
            carries[rank].add_to(tensor)
            carries[rank].watch(work, rank)
            tensors[rank] = tensor
        results += reduce(tensors, masks)
    for carry in carries:
        if carry.pending is not None:
            results += carry.pending
    assert torch.equal(results, given_in_all)


def carried(masks, *, values=None, **how):
    """A carry after one call of rank 0 with this result."""
    carry = Carry()
    tensor = torch.arange(1.0, COUNT + 1) if values is None else torch.tensor(values)
    assert not carry.add_to(tensor, scale=how.pop("scale", 1.0))
    carry.watch(_Work(masks, RANKS, **how), 0)
    return carry


def test_only_shards_without_its_contribution_are_pending():
    carry = carried([[0, 1], [1], [0]])
    assert carry.pending.tolist() == [0, 0, 0, 4, 5, 0, 0]
    tensor = torch.ones(COUNT)
    assert carry.add_to(tensor)
    assert tensor.tolist() == [1, 1, 1, 5, 6, 1, 1]
    carry.watch(_Work([[0]] * 3, RANKS), 0)
    assert carry.pending is None


def test_several_late_contributions_add_up():
    carry = carried([[1]] * 3)
    for _ in range(2):
        carry.add_to(torch.ones(COUNT))
        carry.watch(_Work([[1]] * 3, RANKS), 0)
    assert carry.pending.tolist() == [3, 4, 5, 6, 7, 8, 9]


def test_a_pending_gradient_follows_a_change_of_scale():
    carry = carried([[1]] * 3, scale=1024.0)
    tensor = torch.zeros(COUNT)
    carry.add_to(tensor, scale=512.0)
    assert tensor.tolist() == [0.5, 1, 1.5, 2, 2.5, 3, 3.5]


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_pending_gradient_that_is_not_finite_is_dropped(bad):
    values = [1.0, 2.0, 3.0, 4.0, bad, 6.0, 7.0]
    assert carried([[1], [1], [1]], values=values).pending is None
    # The bad value has counted; the pending values are finite.
    found = carried([[1], [0], [1]], values=values).pending
    assert found.tolist() == [1, 2, 3, 0, 0, 6, 7]


def test_the_gradient_of_a_failed_call_is_dropped_because_it_may_have_counted():
    carry = carried([[1]] * 3, error=AbortedError("lost"))
    assert carry.pending is None
    assert not carry.add_to(torch.ones(COUNT))


def test_a_refused_call_leaves_nothing_pending():
    carry = carried([[1]] * 3)
    tensor = torch.zeros(COUNT)
    assert carry.add_to(tensor)  # watch() does not follow
    assert not carry.add_to(torch.ones(COUNT))


def test_a_dropped_gradient_does_not_return():
    carry = carried([[1]] * 3)
    carry.drop()
    assert carry.pending is None
    assert not carry.add_to(torch.ones(3))


def test_a_call_in_progress_must_end_first():
    carry = carried([[1]] * 3, is_completed=False)
    with pytest.raises(ConfigError, match=r"has not ended.*wait\(\) for its work"):
        carry.add_to(torch.ones(COUNT))


def test_another_tensor_is_refused_while_a_gradient_is_pending():
    with pytest.raises(
        ConfigError, match=r"tensor is torch.float32 \[3\] on cpu but what is pending "
    ):
        carried([[1]] * 3).add_to(torch.ones(3))
    assert not carried([[0]] * 3).add_to(torch.ones(3, dtype=torch.float64))


def test_a_tensor_that_is_not_contiguous_is_refused():
    with pytest.raises(ConfigError, match=r"shape \[3\] and strides \[2\]; only cont"):
        Carry().add_to(torch.ones(6)[::2])


def test_half_precision_is_kept():
    carry = Carry()
    carry.add_to(torch.ones(COUNT, dtype=torch.bfloat16))
    carry.watch(_Work([[1]] * 3, RANKS), 0)
    assert carry.pending.dtype == torch.bfloat16
