# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aikido_torch.elastic._stages import (
    RELIABLE,
    TRANSIENT,
    Stage,
    Thresholds,
    next_stage,
    trains,
)
from aikido_torch.errors import ConfigError

numbers = st.integers(0, 200)
stages = st.sampled_from(list(Stage))


@pytest.mark.parametrize(
    ("present", "reliable", "transient", "stage", "reason"),
    [
        (1, 2, 0, 1, "stage 1 stays: 0 transient to 2 reliable members, ratio 0"),
        (1, 2, 2, 1, "stage 1 stays: 2 transient to 2 reliable members, ratio 1"),
        (
            1,
            2,
            3,
            2,
            "stage 2: 3 transient to 2 reliable members, ratio 1.5 is above 1",
        ),
        (2, 2, 2, 2, "stage 2 stays: 2 transient to 2 reliable members, ratio 1"),
        (
            2,
            4,
            3,
            1,
            "stage 1: 3 transient to 4 reliable members, ratio 0.75 is not above 0.75",
        ),
        (2, 4, 60, 2, "stage 2 stays: 60 transient to 4 reliable members, ratio 15"),
        (
            1,
            4,
            61,
            3,
            "stage 3: 61 transient to 4 reliable members, ratio 15.2 is above 15",
        ),
        (3, 4, 46, 3, "stage 3 stays: 46 transient to 4 reliable members, ratio 11.5"),
        (
            3,
            4,
            45,
            2,
            "stage 2: 45 transient to 4 reliable members, ratio 11.2 is not above 11.2",
        ),
        (3, 4, 0, 1, "stage 1: there is no transient member"),
    ],
)
def test_the_stage_follows_the_ratio(present, reliable, transient, stage, reason):
    decision = next_stage(Stage(present), reliable=reliable, transient=transient)
    assert (decision.stage, decision.reason) == (stage, reason)
    assert decision.is_change == (stage != present)


@given(stages, st.integers(1, 50), numbers)
def test_a_second_decision_with_the_same_members_changes_nothing(
    present, reliable, transient
):
    first = next_stage(present, reliable=reliable, transient=transient)
    again = next_stage(first.stage, reliable=reliable, transient=transient)
    assert again.stage == first.stage
    assert not again.is_change


@given(stages, st.integers(1, 50), numbers, numbers)
def test_more_transient_members_never_lower_the_stage(present, reliable, some, more):
    few = next_stage(present, reliable=reliable, transient=some)
    many = next_stage(present, reliable=reliable, transient=some + more)
    assert many.stage >= few.stage


@given(st.integers(1, 50), numbers)
def test_a_higher_present_stage_never_gives_a_lower_one(reliable, transient):
    found = [next_stage(s, reliable=reliable, transient=transient).stage for s in Stage]
    assert found == sorted(found)


def test_a_member_that_comes_and_goes_at_a_threshold_changes_the_stage_once():
    stage, changes = Stage.RELIABLE_OWNERS, 0
    for transient in [30, 31] * 20:
        decision = next_stage(stage, reliable=30, transient=transient)
        stage, changes = decision.stage, changes + decision.is_change
    assert (stage, changes) == (2, 1)


def test_without_a_margin_the_same_member_changes_the_stage_each_time():
    stage, changes = Stage.RELIABLE_OWNERS, 0
    for transient in [30, 31] * 20:
        decision = next_stage(
            stage, reliable=30, transient=transient, thresholds=Thresholds(margin=0)
        )
        stage, changes = decision.stage, changes + decision.is_change
    assert changes == 39


def test_thresholds_are_parameters():
    thresholds = Thresholds(second=2, third=4)
    found = [
        next_stage(Stage(1), reliable=1, transient=n, thresholds=thresholds).stage
        for n in range(1, 6)
    ]
    assert found == [1, 1, 2, 2, 3]


def test_only_reliable_members_stop_training_in_stage_3():
    assert [trains(stage, RELIABLE) for stage in Stage] == [True, True, False]
    assert all(trains(stage, TRANSIENT) for stage in Stage)


def test_a_job_without_a_reliable_member_is_refused():
    with pytest.raises(ConfigError, match="8 transient members and no reliable member"):
        next_stage(Stage(1), reliable=0, transient=8)
    with pytest.raises(ConfigError, match="-1 transient members; a number"):
        next_stage(Stage(1), reliable=1, transient=-1)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"second": 0}, "second is 0 and third is 15"),
        ({"second": 20}, "second is 20 and third is 15"),
        ({"third": "x"}, "third is 'x'; it takes a number"),
        ({"third": float("inf")}, "third is inf; it takes a number"),
        ({"margin": True}, "margin is True"),
        ({"margin": 1}, "margin is 1; it takes a part"),
    ],
)
def test_wrong_thresholds_are_refused(values, text):
    with pytest.raises(ConfigError, match=text):
        Thresholds(**values)
