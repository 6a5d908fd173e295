# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Simulator of the capacity market: billing, losses and the end of a job."""

import numpy as np
import pytest

from aikido_torch.market import DeadlineJob, MarketError
from aikido_torch.market._capacity import simulate_capacity
from aikido_torch.market._deadline import Machine

JOB = DeadlineJob(
    work_s=3600.0,
    deadline_s=36000.0,
    overhead_s=600.0,
    spot_usd_per_hour=1.0,
    on_demand_usd_per_hour=3.0,
)


class Scripted:
    """Uses the given machine at each sample; the last one goes on."""

    def __init__(self, *machines):
        self._machines = list(machines)

    def observe(self, available, gap_s):
        pass

    def choose(self, situation):
        first = self._machines[0]
        if len(self._machines) > 1:
            self._machines.pop(0)
        machine, region = first if isinstance(first, tuple) else (first, 0)
        return machine, region, "scripted"


def run(policy, *regions, **options):
    return simulate_capacity(JOB, policy, np.array(regions, bool), 600.0, **options)


def test_on_demand_pays_for_its_overhead():
    result = run(Scripted(Machine.ON_DEMAND), [0] * 10)
    assert result.usd == pytest.approx(3.0 * 4200 / 3600)
    assert result.done_s == 4200
    assert result.launches == 1
    assert not result.is_missed


def test_the_last_sample_is_billed_by_the_second():
    job = DeadlineJob(
        work_s=900.0,
        deadline_s=9000.0,
        overhead_s=0.0,
        spot_usd_per_hour=1.0,
        on_demand_usd_per_hour=3.0,
    )
    result = simulate_capacity(
        job, Scripted(Machine.SPOT), np.ones((1, 9), bool), 600.0
    )
    assert result.done_s == 900
    assert result.usd == pytest.approx(0.25)


def test_a_lost_spot_machine_keeps_its_progress_and_launches_again():
    policy = Scripted(Machine.SPOT, Machine.SPOT, Machine.NONE, Machine.SPOT)
    result = run(policy, [1, 1, 0, 1, 1, 1, 1, 1, 1, 1])
    assert result.losses == 1
    assert result.launches == 2
    # 600 s of overhead, 600 s of work, 600 s without a machine, then 3,600 s.
    assert result.done_s == 600 + 600 + 600 + 600 + 3000
    assert result.usd == pytest.approx((1200 + 3600) / 3600)


def test_a_move_to_another_region_is_a_launch_with_its_cost():
    policy = Scripted((Machine.SPOT, 0), (Machine.SPOT, 1))
    result = run(policy, [1] * 12, [1] * 12, move_usd=5.0)
    assert result.launches == 2
    assert result.usd == pytest.approx(5.0 + (600 + 600 + 3600) / 3600)


def test_a_late_end_is_a_missed_deadline():
    policy = Scripted(*[Machine.NONE] * 58, Machine.ON_DEMAND)
    assert run(policy, [0] * 80).is_missed


def test_spot_without_capacity_and_a_short_trace_are_refused():
    with pytest.raises(MarketError, match="region 0 at 0 s, which has no capacity"):
        run(Scripted(Machine.SPOT), [0, 0])
    with pytest.raises(MarketError, match="trace ends 1200 s after the start"):
        run(Scripted(Machine.NONE), [0, 0])
