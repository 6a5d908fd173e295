# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The weight of a step, and the handles that take none."""

import math

import pytest

from aikido_torch import _C
from aikido_torch.ddp._step_weight import StepWeight
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import ActiveBackup, SkipStraggler, WaitAll


def weight_of_handle(policy=None, **options):
    kept = _C.StepWeight()
    return StepWeight(kept, policy or SkipStraggler(), **options), kept


def test_without_a_weight_the_calls_have_none():
    weight, kept = weight_of_handle()
    kept.end_step()
    assert weight.value == 1.0
    assert kept.value is None


@pytest.mark.parametrize("policy", [WaitAll(), SkipStraggler()])
def test_the_weight_is_one_again_after_the_step(policy):
    weight, kept = weight_of_handle(policy)
    weight.set(3, may_begin=True)
    assert (weight.value, kept.value) == (3.0, 3.0)
    kept.end_step()
    assert (weight.value, kept.value) == (1.0, 1.0)
    weight.set(0, may_begin=False)
    assert kept.value == 0.0


def test_a_backward_that_throws_does_not_leave_its_weight_to_the_next_step():
    weight, kept = weight_of_handle()
    weight.set(3, may_begin=True)
    kept.begin_step()
    kept.drop_step()
    assert weight.value == 1.0
    weight.set(2, may_begin=False)
    kept.drop_step()  # replays a step before the backward
    assert weight.value == 2.0
    kept.begin_step()
    weight.set(4, may_begin=False)  # for the next backward
    kept.drop_step()
    assert weight.value == 4.0


def test_the_first_weight_is_set_before_the_first_backward():
    weight, kept = weight_of_handle()
    with pytest.raises(ConfigError, match="before the first backward"):
        weight.set(3, may_begin=False)
    assert kept.value is None


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, 1e301, "3", None, True])
def test_a_wrong_weight_changes_nothing(wrong):
    weight, kept = weight_of_handle()
    weight.set(2, may_begin=True)
    with pytest.raises(ConfigError, match="weight is"):
        weight.set(wrong, may_begin=True)
    assert kept.value == 2.0


@pytest.mark.parametrize(
    ("policy", "carries", "remedy"),
    [
        (ActiveBackup(backups=1), False, "SkipStraggler"),
        (SkipStraggler(divisor="world"), False, 'divisor="contributors"'),
        (SkipStraggler(), True, 'late="drop"'),
    ],
)
def test_some_handles_take_no_weight(policy, carries, remedy):
    weight, kept = weight_of_handle(policy, carries=carries)
    with pytest.raises(ConfigError, match=remedy):
        weight.set(1, may_begin=True)
    assert kept.value is None
