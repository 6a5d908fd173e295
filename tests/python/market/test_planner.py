# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Planner of the auction market: exhaustive search, and its formulas by hand."""

import itertools
import math

import numpy as np
import pytest

from aikido_torch.market import MarketError, Planner, PlannerState, Work
from aikido_torch.market._planner import Allocation, Market

WORK = Work(rates={"m": 2.0, "l": 5.0}, max_machines=8, eviction_s=120, resize_s=30)


def market(price=0.1, chance=0.5, deltas=(0.0, 0.01), kind="m", **more):
    """A market whose machines live an hour with `chance` for the lowest bid."""
    ends = np.linspace(chance, 1.0, len(deltas))
    survival = np.array([np.linspace(1.0, end, 61) for end in ends])
    return Market(
        name="zone",
        kind=kind,
        price=price,
        deltas=np.array(deltas),
        survival=survival,
        **more,
    )


def held(index=0, count=4, bid=0.11, price=0.1, left=0.0):
    return Allocation(market=index, count=count, bid=bid, price=price, hour_left_s=left)


def test_the_cost_of_one_rented_allocation_by_hand():
    state = PlannerState(markets=[market(chance=0.5, deltas=(0.0,))])
    plan = Planner(WORK).decide(state)
    survival = np.linspace(1.0, 0.5, 61)
    alive = 60 * survival[1:].sum()
    cost = 0.5 * 8 * 0.1
    items = 8 * 2.0 * (alive - 0.5 * 120 - 30)
    assert plan.usd_per_item == pytest.approx(cost / items)
    assert plan.add is not None
    assert (plan.add.count, plan.add.bid) == (8, 0.1)
    assert "rent 8 in zone with bid 0.1000" in plan.reason


def random_state(random):
    markets = []
    for _ in range(random.integers(1, 4)):
        count = random.integers(1, 4)
        ends = np.sort(random.random(count))
        markets.append(
            Market(
                name="zone",
                kind=str(random.choice(["m", "l"])),
                price=float(random.uniform(0.01, 0.5)),
                deltas=np.sort(random.uniform(0, 0.2, count)),
                survival=np.array([np.linspace(1, end, 61) for end in ends]),
                on_demand=float(random.uniform(0.2, 1))
                if random.random() < 0.5
                else None,
                limit=int(random.integers(1, 9)),
            )
        )
    allocations = [
        held(
            index=int(random.integers(len(markets))),
            count=int(random.integers(1, 4)),
            bid=float(random.uniform(0.01, 0.6)),
            price=float(random.uniform(0.01, 0.5)),
            left=float(random.choice([0.0, 900.0, 3599.0])),
        )
        for _ in range(random.integers(0, 4))
    ]
    return PlannerState(markets=markets, allocations=allocations)


def all_actions(state, work):
    ending = [one.hour_left_s <= 0 for one in state.allocations]
    for keep in itertools.product(*[(True, False) if e else (True,) for e in ending]):
        used = [a for a, k in zip(state.allocations, keep, strict=True) if k]
        yield keep, None
        for index, one in enumerate(state.markets):
            room = work.max_machines - sum(a.count for a in used)
            here = one.limit - sum(a.count for a in used if a.market == index)
            count = min(room, here)
            if count <= 0:
                continue
            bids = [one.price + delta for delta in one.deltas]
            if one.on_demand is not None:
                bids.append(math.inf)
            for bid in bids:
                yield keep, held(index, count, bid, one.price, 3600.0)


def test_the_choice_is_the_cheapest_of_all_actions_in_random_states():
    random = np.random.default_rng(0)
    planner = Planner(WORK)
    for _ in range(1000):
        state = random_state(random)
        plan = planner.decide(state)
        best = min(
            planner.usd_per_item(state, keep, add)
            for keep, add in all_actions(state, WORK)
        )
        assert plan.usd_per_item == pytest.approx(best)
        chosen = planner.usd_per_item(state, plan.keep, plan.add)
        if math.isfinite(best):
            assert chosen == pytest.approx(best)


def test_a_lower_price_never_costs_more():
    costs = [
        Planner(WORK).decide(PlannerState(markets=[market(price)])).usd_per_item
        for price in (0.05, 0.1, 0.2)
    ]
    assert costs == sorted(costs)


def test_an_allocation_in_its_paid_hour_is_kept():
    state = PlannerState(
        markets=[market(price=0.5), market(price=0.01)],
        allocations=[held(left=1800.0)],
    )
    plan = Planner(WORK).decide(state)
    assert plan.keep == (True,)
    assert plan.add is not None
    assert plan.add.market == 1


def test_a_dear_allocation_is_given_back_at_the_end_of_its_hour():
    state = PlannerState(
        markets=[market(price=0.5, chance=1.0), market(price=0.01)],
        allocations=[held(bid=0.6, count=8)],
    )
    plan = Planner(WORK).decide(state)
    assert plan.keep == (False,)
    assert plan.reason.startswith("give back 1 allocation and rent 8")


def test_on_demand_is_chosen_when_spot_is_dearer():
    state = PlannerState(markets=[market(price=2.0, chance=1.0, on_demand=0.2)])
    plan = Planner(WORK).decide(state)
    assert plan.add is not None
    assert math.isinf(plan.add.bid)
    assert "on demand" in plan.reason


def test_machines_that_keep_the_state_are_part_of_the_cost():
    dear = Work(rates={"m": 2.0}, max_machines=8, reliable_usd_per_hour=10.0)
    free = Work(rates={"m": 2.0}, max_machines=8)
    state = PlannerState(markets=[market()])
    costs = [Planner(w).decide(state).usd_per_item for w in (free, dear)]
    assert costs[0] < costs[1]


def test_the_efficiency_falls_with_the_machines():
    work = Work(rates={"m": 1.0}, max_machines=4, scaling=0.5)
    assert work.efficiency(np.array([1.0, 4.0])) == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rates": {}}, "rates are"),
        ({"rates": {"m": 0.0}}, "rates are"),
        ({"max_machines": 0}, "max_machines is 0"),
        ({"scaling": 1.5}, "scaling is 1.5"),
        ({"eviction_s": -1.0}, "eviction_s is -1"),
    ],
)
def test_a_wrong_work_model_is_refused(changes, text):
    with pytest.raises(MarketError, match=text):
        Work(**({"rates": {"m": 1.0}, "max_machines": 1} | changes))


def test_an_unknown_type_and_an_empty_market_are_refused():
    with pytest.raises(MarketError, match="no rate for the type 'x', only m, l"):
        Planner(WORK).decide(PlannerState(markets=[market(kind="x")]))
    with pytest.raises(MarketError, match="There is no market"):
        Planner(WORK).decide(PlannerState(markets=[]))
