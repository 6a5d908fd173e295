# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Offline oracle against an exhaustive search over small traces."""

import itertools

import numpy as np
import pytest

from aikido_torch.market import DeadlineJob
from aikido_torch.market._oracle import oracle_usd

GAP = 600.0


def job(work, deadline, overhead):
    return DeadlineJob(
        work_s=work * GAP,
        deadline_s=deadline * GAP,
        overhead_s=overhead * GAP,
        spot_usd_per_hour=1.0,
        on_demand_usd_per_hour=3.0,
    )


def exhaustive(own, available):
    """Least cost over all sequences of machines; 0 none, 1 on demand, 2.. regions."""
    samples = round(own.deadline_s / GAP)
    best = np.inf
    for plan in itertools.product(range(len(available) + 2), repeat=samples):
        left, overhead, usd, before = own.work_s, 0.0, 0.0, 0
        for sample, machine in enumerate(plan):
            if machine >= 2 and not available[machine - 2, sample]:
                usd = np.inf
                break
            lost = before >= 2 and not available[before - 2, sample]
            if machine != before or lost:
                overhead = own.overhead_s
            before = machine
            if machine == 0:
                continue
            spent = min(GAP, overhead + left)
            left -= max(0.0, spent - overhead)
            overhead = max(0.0, overhead - spent)
            usd += spent / 3600 * (3.0 if machine == 1 else 1.0)
            if left <= 1e-6:
                break
        if left <= 1e-6:
            best = min(best, usd)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_is_the_least_cost_of_all_plans(seed):
    random = np.random.default_rng(seed)
    regions = 1 + seed % 2
    samples = 8 if regions == 1 else 6
    available = random.random((regions, samples)) < 0.6
    own = job(random.choice([2, 2.5, 3]), samples, random.choice([0.5, 1, 1.5]))
    assert oracle_usd(own, available, GAP) == pytest.approx(exhaustive(own, available))


def test_a_coarse_grid_gives_a_lower_bound():
    available = np.random.default_rng(0).random((1, 60)) < 0.6
    own = job(20, 50, 0.7)
    exact = oracle_usd(own, available, GAP)
    assert oracle_usd(own, available, GAP, max_points=40) <= exact + 1e-9


def test_the_start_shifts_the_trace():
    available = np.array([[0] * 10 + [1] * 10], bool)
    own = job(5, 8, 1)
    assert oracle_usd(own, available, GAP, start=10) == pytest.approx(1.0)
    assert oracle_usd(own, available, GAP) == pytest.approx(3.0)
