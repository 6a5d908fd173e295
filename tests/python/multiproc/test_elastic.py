# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Elastic jobs of real processes: members die, join and leave while the job trains."""

import pytest

from aikido_torch.elastic._stages import Thresholds
from aikido_torch.testing._ranks import RanksFailedError
from harness.elastic_jobs import (
    STEPS,
    Plan,
    items_of_epochs,
    replay,
    run_job,
)

RELIABLE = Plan(role="reliable")
# Stage 2 begins above one transient member for each reliable one; stage 3 above two.
THRESHOLDS = Thresholds(second=1.0, third=2.0, margin=0.0)


def check_survivors(results):
    """All survivors agree, and equal a replay of the committed items."""
    survivors = [result for result in results if result is not None]
    steps, _, parameters, _ = survivors[0]
    assert sorted(steps) == list(range(STEPS))
    for own, _, other, schedule in survivors:
        if STEPS - 1 not in own:  # it has left
            continue
        assert other == parameters
        assert schedule == STEPS
        assert own == {number: steps[number] for number in own}
    assert parameters == replay(steps)
    for epoch in items_of_epochs(steps):
        assert len(set(epoch)) == len(epoch)  # each item once
    return survivors[0]


def test_a_job_goes_on_after_a_death_and_a_join():
    plans = [RELIABLE, RELIABLE, Plan(), Plan(dies_at=20), Plan(joins_at=30)]
    results = run_job(plans)
    steps, events, _, _ = check_survivors(results)
    assert results[3] is None
    assert len(steps[19]) == 4
    assert len(steps[20]) == 3  # the failed step was repeated with the same items
    assert len(steps[STEPS - 1]) == 4
    assert [count for what, _, count in events if what == "members"] == [4, 3, 4]
    assert min(results[4][0]) > 30  # it began with the state of another member


def test_all_transient_members_may_die_at_once():
    plans = [RELIABLE, RELIABLE, *[Plan(dies_at=25)] * 4]
    results = run_job(plans)
    steps = check_survivors(results)[0]
    assert len(steps[24]) == 6
    assert len(steps[25]) == 2
    assert results[2:] == [None] * 4


def test_a_member_with_a_notice_leaves_without_a_lost_step():
    # The last member is on the machine of a member with a notice.
    plans = [RELIABLE, Plan(), Plan(notice_at=15, host="a"), Plan(host="a")]
    results = run_job(plans)
    steps = check_survivors(results)[0]
    assert len(steps[15]) == 4  # the step of the notice is complete
    assert len(steps[16]) == 2
    for left in results[2:]:
        assert max(left[0]) == 15
        assert left[1][-1] == ("left", 16, 4)


def test_without_most_reliable_members_the_job_ends_with_a_sentence():
    plans = [RELIABLE, Plan(role="reliable", dies_at=10), Plan()]
    with pytest.raises(RanksFailedError) as failure:
        run_job(plans, deadline=60.0)
    for rank in (0, 2):
        text = failure.value.failures[rank]
        assert "1 of 2 reliable members have answered" in text
        assert "from its last checkpoint" in text


@pytest.mark.parametrize("is_late", [False, True])
def test_owners_of_shards_may_die_while_reliable_members_have_copies(is_late):
    # Stage 2 with 2 reliable and 3 transient members, stage 1 after the deaths.
    dies = Plan(dies_at=20, dies_late=is_late)
    plans = [RELIABLE, RELIABLE, Plan(), dies, dies, Plan(joins_at=30)]
    results = run_job(plans, thresholds=THRESHOLDS)
    steps = check_survivors(results)[0]
    assert len(steps[19]) == 5
    assert len(steps[20]) == 3
    assert len(steps[STEPS - 1]) == 4


def test_reliable_members_only_keep_copies_in_stage_3():
    plans = [RELIABLE, *[Plan()] * 2, *[Plan(dies_at=20)] * 2]
    steps = check_survivors(run_job(plans, thresholds=THRESHOLDS))[0]
    assert len(steps[19]) == 4  # the reliable member has no items
    assert len(steps[STEPS - 1]) == 3  # stage 2: it has


def test_all_owners_may_die_at_once():
    plans = [RELIABLE, RELIABLE, *[Plan(dies_at=20, dies_late=True)] * 4]
    steps = check_survivors(run_job(plans, thresholds=THRESHOLDS))[0]
    assert len(steps[20]) == 2


def test_owners_with_a_notice_hand_over_their_shards():
    plans = [RELIABLE, RELIABLE, Plan(), *[Plan(notice_at=15)] * 2]
    steps = check_survivors(run_job(plans, thresholds=THRESHOLDS))[0]
    assert len(steps[16]) == 3


def test_a_shard_that_is_lost_with_its_owner_ends_the_job_with_a_sentence():
    plans = [RELIABLE, RELIABLE, Plan(role="reliable", dies_at=10)]
    with pytest.raises(RanksFailedError) as failure:
        run_job(plans, thresholds=THRESHOLDS)
    for rank in (0, 1):
        assert "is lost with its owner" in failure.value.failures[rank]
