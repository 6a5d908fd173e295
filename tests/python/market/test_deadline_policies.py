# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Policies with a deadline: none of them misses one, and their order of cost."""

import numpy as np
import pytest

from aikido_torch.market import DeadlineJob
from aikido_torch.market._capacity import simulate_capacity
from aikido_torch.market._deadline_policies import (
    GreedySpot,
    OnDemandOnly,
    SurvivalPolicy,
    UniformProgress,
)
from aikido_torch.market._oracle import oracle_usd

HOUR = 3600.0


def random_market(seed, regions=1, samples=900, leaves=0.05, comes=0.05):
    random = np.random.default_rng(seed)
    state = random.random(regions) < 0.5
    rows = []
    for _ in range(samples):
        draw = random.random(regions)
        state = np.where(state, draw >= leaves, draw < comes)
        rows.append(state)
    return np.array(rows).T


def job(overhead_s=600.0, deadline=12):
    return DeadlineJob(
        work_s=8 * HOUR,
        deadline_s=deadline * HOUR,
        overhead_s=overhead_s,
        spot_usd_per_hour=1.0,
        on_demand_usd_per_hour=3.0,
    )


def policies(own, regions):
    return {
        "planner": SurvivalPolicy(own, num_regions=regions, max_steps=60),
        "uniform": UniformProgress(own),
        "greedy": GreedySpot(own),
        "on demand": OnDemandOnly(),
    }


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("gap_s", [195.0, 600.0])
def test_no_policy_misses_a_deadline(seed, gap_s):
    random = np.random.default_rng(100 + seed)
    regions = int(random.integers(1, 4))
    market = random_market(seed, regions, leaves=random.uniform(0, 0.5))
    own = job(overhead_s=float(random.choice([60, 200, 720, 1800])), deadline=9.5)
    least = oracle_usd(own, market, gap_s)
    for name, policy in policies(own, regions).items():
        run = simulate_capacity(own, policy, market, gap_s)
        assert not run.is_missed, name
        assert run.usd >= least - 0.02, name


def adversary(kind, samples=400):
    market = np.zeros((1, samples), bool)
    if kind == "flips":
        market[:, ::2] = True
    elif kind == "ends":
        market[:, :70] = True
    elif kind == "always":
        market[:] = True
    return market


@pytest.mark.parametrize("kind", ["flips", "ends", "always", "never"])
@pytest.mark.parametrize("slack_s", [600.0, 800.0, 1100.0, 5000.0])
def test_the_planner_is_done_in_the_worst_markets(kind, slack_s):
    own = DeadlineJob(
        work_s=8 * HOUR,
        deadline_s=8 * HOUR + slack_s,
        overhead_s=600.0,
        spot_usd_per_hour=1.0,
        on_demand_usd_per_hour=3.0,
    )
    run = simulate_capacity(
        own, SurvivalPolicy(own, max_steps=60), adversary(kind), 195.0
    )
    assert not run.is_missed


def test_the_planner_costs_less_than_uniform_progress_on_average():
    own = job()
    costs = {name: [] for name in policies(own, 1)}
    for seed in range(12):
        market = random_market(seed)
        for name, policy in policies(own, 1).items():
            for sample in market[:, :400].T:
                policy.observe(sample, 300.0)
            run = simulate_capacity(own, policy, market, 300.0, start=400)
            costs[name].append(run.usd)
    means = {name: np.mean(found) for name, found in costs.items()}
    assert means["planner"] < 0.97 * means["uniform"]
    assert means["uniform"] < means["on demand"]


def test_more_regions_cost_less():
    own = job()
    costs = []
    for regions in (1, 4):
        found = []
        for seed in range(6):
            market = random_market(seed, 4)[:regions]
            policy = SurvivalPolicy(own, num_regions=regions, max_steps=60)
            found.append(simulate_capacity(own, policy, market, 300.0).usd)
        costs.append(np.mean(found))
    assert costs[1] < costs[0]
