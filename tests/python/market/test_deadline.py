# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Planner with a deadline: its rule of safety, and the sense of its choices."""

import numpy as np
import pytest

from aikido_torch.market import (
    DeadlineJob,
    DeadlinePlanner,
    JobState,
    MarketError,
    Survival,
)
from aikido_torch.market._deadline import Machine, is_safe

HOUR = 3600.0


def job(**changes):
    values = {
        "work_s": 10 * HOUR,
        "deadline_s": 14 * HOUR,
        "overhead_s": 600.0,
        "spot_usd_per_hour": 1.0,
        "on_demand_usd_per_hour": 3.0,
    }
    return DeadlineJob(**(values | changes))


def state(**changes):
    values = {
        "remaining_s": 14 * HOUR,
        "work_left_s": 10 * HOUR,
        "machine": Machine.NONE,
        "overhead_left_s": 0.0,
        "is_available": True,
        "age_s": 0.0,
        "gap_s": 300.0,
    }
    return JobState(**(values | changes))


@pytest.fixture(scope="module")
def planner():
    return DeadlinePlanner(job(), Survival().hazards(), max_steps=60)


def test_spot_is_used_while_there_is_slack(planner):
    choice = planner.decide(state())
    assert choice.machine == Machine.SPOT
    assert choice.usd[Machine.SPOT] < choice.usd[Machine.ON_DEMAND]
    assert choice.reason.startswith("spot: expected cost")


def test_a_job_without_slack_runs_on_demand(planner):
    choice = planner.decide(state(remaining_s=10 * HOUR + 700))
    assert choice.machine == Machine.ON_DEMAND
    assert "slack of 700 s" in choice.reason


def test_a_job_waits_for_spot_while_it_has_time(planner):
    choice = planner.decide(state(is_available=False))
    assert choice.machine == Machine.NONE
    assert Machine.SPOT not in choice.usd


def test_a_done_job_needs_no_machine(planner):
    assert planner.decide(state(work_left_s=0.0)).machine == Machine.NONE


def test_the_bound_of_safety_is_the_launch_and_the_next_decision():
    edge = 10 * HOUR + 600 + 300
    assert is_safe(job(), state(remaining_s=edge))
    assert not is_safe(job(), state(remaining_s=edge - 1))


def test_costs_lie_between_all_spot_and_all_on_demand(planner):
    usd = planner.decide(state()).usd
    for cost in usd.values():
        assert 10.0 - 0.1 <= cost <= 30.0 + 3.0


def test_spot_that_never_leaves_costs_the_spot_price():
    hazards = np.full((2, 6), 1e-12)
    choice = DeadlinePlanner(job(), hazards, max_steps=100).decide(state())
    assert choice.usd[Machine.SPOT] == pytest.approx(10 + 1 / 6, rel=0.02)


def test_a_later_deadline_never_costs_more():
    hazards = Survival().hazards()
    costs = []
    for hours in (11, 14, 20, 30):
        own = job(deadline_s=hours * HOUR)
        choice = DeadlinePlanner(own, hazards, max_steps=80).decide(
            state(remaining_s=hours * HOUR, is_available=False)
        )
        costs.append(min(choice.usd.values()))
    assert costs == sorted(costs, reverse=True)


def test_equal_states_give_equal_choices(planner):
    assert planner.decide(state()) == planner.decide(state())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"deadline_s": 10 * HOUR}, "deadline is lost already: it comes in 36000 s"),
        ({"work_s": 0.0}, "work_s is 0"),
        ({"overhead_s": -1.0}, "overhead_s is -1"),
        ({"spot_usd_per_hour": -1.0}, "spot_usd_per_hour is -1"),
        ({"on_demand_usd_per_hour": float("inf")}, "on_demand_usd_per_hour is inf"),
    ],
)
def test_a_wrong_job_is_refused(changes, text):
    with pytest.raises(MarketError, match=text):
        job(**changes)


def test_a_job_without_overhead_is_planned():
    own = job(overhead_s=0.0)
    choice = DeadlinePlanner(own, Survival().hazards(), max_steps=60).decide(state())
    assert choice.machine == Machine.SPOT
