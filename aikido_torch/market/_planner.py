# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Planner for the auction market: the least expected cost per unit of work.

After BidBrain (Harlap et al., EuroSys 2017, section 5; symbols recalled). For the paid
hours of all allocations, with t_i the rest of the hour of allocation i:

    cost_i   = P(alive at the end of t_i) * price_i * count_i * t_i
    p_any    = 1 - product over i of P(alive at the end of t_i)
    useful_i = max(0, E[time alive within t_i] - p_any * lambda - changed * sigma)
    work     = phi(machines) * sum of count_i * rate_i * useful_i
    E        = (sum of cost_i + cost of reliable machines) / work

An interrupted hour is refunded, so its cost is zero. Unlike the recalled formula, the
useful time of an evicted allocation ends at its eviction, not at the end of the hour.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._errors import MarketError

__all__ = ["Allocation", "Market", "Plan", "Planner", "PlannerState", "Work"]

HOUR_S = 3600.0
_MOST_ENDING = 6  # allocations at an hour's end whose subsets are all tried


@dataclass(frozen=True, kw_only=True)
class Work:
    """The job's own measured figures.

    Attributes:
        rates: items per second of one machine, by type.
        max_machines: most spot machines that the job can use.
        scaling: exponent a of the efficiency phi = machines ** (a - 1); 1 is ideal.
        eviction_s: lambda, seconds that all machines lose when some are evicted.
        resize_s: sigma, seconds that all machines lose when machines are added.
        reliable_usd_per_hour: cost of machines that keep the state and do no work.
    """

    rates: dict[str, float]
    max_machines: int
    scaling: float = 1.0
    eviction_s: float = 120.0
    resize_s: float = 30.0
    reliable_usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        if not self.rates or not all(rate > 0 for rate in self.rates.values()):
            raise MarketError(f"rates are {self.rates}; give items per second above 0.")
        if self.max_machines < 1:
            raise MarketError(f"max_machines is {self.max_machines}; give at least 1.")
        if not 0 < self.scaling <= 1:
            raise MarketError(f"scaling is {self.scaling}; it is above 0, at most 1.")
        for name in ("eviction_s", "resize_s", "reliable_usd_per_hour"):
            if not getattr(self, name) >= 0:
                raise MarketError(f"{name} is {getattr(self, name)}; it is at least 0.")

    def rate(self, kind: str) -> float:
        """Items per second of a machine of this type.

        Raises:
            MarketError: the type is unknown.
        """
        if kind not in self.rates:
            known = ", ".join(self.rates)
            raise MarketError(f"There is no rate for the type {kind!r}, only {known}.")
        return self.rates[kind]

    def efficiency(self, machines: NDArray[np.float64]) -> NDArray[np.float64]:
        """phi for numbers of machines."""
        return np.asarray(np.maximum(machines, 1.0) ** (self.scaling - 1.0))


@dataclass(frozen=True, kw_only=True)
class Market:
    """One market as the planner sees it at a decision.

    Attributes:
        name: name of the market.
        kind: type of its machines.
        price: USD per hour now.
        deltas: shape (n,), bids above the price, ascending.
        survival: shape (n, 61), probability to live at least so many minutes.
        on_demand: USD per hour of an on-demand machine; None if there are none.
        limit: most machines to be rented here.
    """

    name: str
    kind: str
    price: float
    deltas: NDArray[np.float64] = field(repr=False)
    survival: NDArray[np.float64] = field(repr=False)
    on_demand: float | None = None
    limit: int = 10**9


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Machines that were rented together.

    Attributes:
        market: index of the market.
        count: number of machines.
        bid: USD per hour; infinite for on-demand machines.
        price: USD per hour of the paid hour.
        hour_left_s: seconds to the end of the paid hour; 0 if it ends now.
    """

    market: int
    count: int
    bid: float
    price: float
    hour_left_s: float


@dataclass(frozen=True, kw_only=True)
class PlannerState:
    """Markets and allocations at a decision."""

    markets: Sequence[Market]
    allocations: Sequence[Allocation] = ()


# Market, count, bid and price of an addition; None to rent nothing.
Option = tuple[int, int, float, float] | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Actions at a decision.

    Attributes:
        keep: for each allocation, whether to go on with it.
        add: the allocation to rent; None for none.
        usd_per_item: expected cost per item of the chosen actions.
        reason: one sentence for the log.
        state: the markets and allocations of the decision.
        compared: addition, number of allocations to give back, and expected USD per
            item, for each plan.
    """

    keep: tuple[bool, ...]
    add: Allocation | None
    usd_per_item: float
    reason: str
    state: PlannerState = field(repr=False)
    compared: list[tuple[Option, int, float]] = field(repr=False)

    @property
    def alternatives(self) -> list[tuple[str, float]]:
        """(actions, expected USD per item) of all plans, the cheapest first."""
        found = sorted(self.compared, key=lambda plan: plan[2])
        return [(_text(self.state, one, drops), cost) for one, drops, cost in found]


@dataclass
class _Part:
    """Terms of the cost of allocations, as numbers or as arrays over candidates."""

    cost: NDArray[np.float64]
    alive_end: NDArray[np.float64]
    alive_s: NDArray[np.float64]
    rate: NDArray[np.float64]
    count: NDArray[np.float64]


class Planner:
    """Decides which machines to rent, and which to give back at an hour's end.

    Pure: equal states give equal plans.
    """

    def __init__(self, work: Work) -> None:
        self._work = work

    def decide(self, state: PlannerState) -> Plan:
        """The cheapest of all combinations of kept allocations and one addition.

        An allocation within its paid hour is always kept, since its hour is paid. All
        subsets of at most six ending allocations are compared.

        Raises:
            MarketError: there is no market, or a type has no rate.
        """
        if not state.markets:
            raise MarketError("There is no market; give at least one.")
        held = [self._held(state, one) for one in state.allocations]
        ending = [i for i, one in enumerate(state.allocations) if one.hour_left_s <= 0]
        free = ending[:_MOST_ENDING]
        best: tuple[float, tuple[bool, ...], Option] = (math.inf, (), None)
        compared: list[tuple[Option, int, float]] = []
        for keeps in itertools.product((True, False), repeat=len(free)):
            keep = [True] * len(held)
            for index, is_kept in zip(free, keeps, strict=True):
                keep[index] = is_kept
            kept = [part for part, is_kept in zip(held, keep, strict=True) if is_kept]
            used = [o for o, k in zip(state.allocations, keep, strict=True) if k]
            options, candidates = self._candidates(state, used)
            costs = self._per_item(kept, candidates)
            dropped = keep.count(False)
            compared += [
                (option, dropped, cost)
                for option, cost in zip(options, costs.tolist(), strict=True)
            ]
            place = int(costs.argmin())
            if costs[place] < best[0] or not best[1]:
                add = options[place] if math.isfinite(costs[place]) else None
                best = (float(costs[place]), tuple(keep), add)
        cost, keep_best, option = best
        text = _text(state, option, keep_best.count(False))
        number = len(compared)
        return Plan(
            keep=keep_best,
            add=None if option is None else _allocation(option),
            usd_per_item=cost,
            reason=f"{text}: {cost:.4g} USD per item, the least of {number} plans.",
            state=state,
            compared=compared,
        )

    def usd_per_item(
        self, state: PlannerState, keep: Sequence[bool], add: Allocation | None
    ) -> float:
        """Expected cost per item of one combination of actions."""
        kept = [
            self._held(state, one)
            for one, is_kept in zip(state.allocations, keep, strict=True)
            if is_kept
        ]
        new = _none()
        if add is not None:
            new = self._held(state, add)
        return float(self._per_item(kept, new)[0])

    def _held(self, state: PlannerState, one: Allocation) -> _Part:
        market = state.markets[one.market]
        left = one.hour_left_s if one.hour_left_s > 0 else HOUR_S
        price = one.price if one.hour_left_s > 0 else market.price
        if math.isinf(one.bid):
            price = market.on_demand if market.on_demand is not None else price
            end, alive = 1.0, left
        else:
            delta = one.bid - market.price
            row = int(np.searchsorted(market.deltas, delta + 1e-9, side="right")) - 1
            if delta < 0:
                end, alive = 0.0, 0.0
            else:
                survival = market.survival[max(row, 0)]
                end, alive = _alive(survival, left)
        one_by = one.count * price * left / HOUR_S
        return _Part(
            cost=np.array([end * one_by]),
            alive_end=np.array([end]),
            alive_s=np.array([alive]),
            rate=np.array([self._work.rate(market.kind)]),
            count=np.array([float(one.count)]),
        )

    def _candidates(
        self, state: PlannerState, used: Sequence[Allocation]
    ) -> tuple[list[Option], _Part]:
        room = self._work.max_machines - sum(one.count for one in used)
        options: list[Option] = [None]
        parts = [_none()]
        for index, market in enumerate(state.markets):
            here = sum(one.count for one in used if one.market == index)
            count = min(room, market.limit - here)
            if count <= 0:
                continue
            rate = self._work.rate(market.kind)
            bids = market.price + market.deltas
            options += [(index, count, bid, market.price) for bid in bids.tolist()]
            end = market.survival[:, -1]
            alive = 60.0 * market.survival[:, 1:].sum(axis=1)
            full = np.full(len(bids), float(count))
            parts.append(
                _Part(end * count * market.price, end, alive, rate + 0 * full, full)
            )
            if market.on_demand is not None:
                option = (index, count, math.inf, market.on_demand)
                options.append(option)
                parts.append(self._held(state, _allocation(option)))
        joined = _Part(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("cost", "alive_end", "alive_s", "rate", "count")
            )
        )
        return options, joined

    def _per_item(self, kept: Sequence[_Part], new: _Part) -> NDArray[np.float64]:
        """E for each candidate in `new` beside the kept allocations."""
        work = self._work
        lives = math.prod(float(part.alive_end[0]) for part in kept)
        p_any = 1.0 - lives * new.alive_end
        changed = (new.count > 0) * work.resize_s
        loss = p_any * work.eviction_s + changed
        done = new.count * new.rate * np.maximum(0.0, new.alive_s - loss)
        cost = new.cost + work.reliable_usd_per_hour
        machines = new.count.copy()
        for part in kept:
            useful = np.maximum(0.0, part.alive_s[0] - loss)
            done = done + part.count[0] * part.rate[0] * useful
            cost = cost + part.cost[0]
            machines = machines + part.count[0]
        items = done * work.efficiency(machines)
        return np.where(items > 0, cost / np.maximum(items, 1e-300), math.inf)


def _none() -> _Part:
    zero = np.zeros(1)
    return _Part(zero, np.ones(1), zero, zero, zero)


def _alive(survival: NDArray[np.float64], left_s: float) -> tuple[float, float]:
    """P(alive after `left_s`) and expected seconds alive within it."""
    minutes = min(left_s / 60.0, 60.0)
    whole = int(minutes)
    next_one = float(survival[min(whole + 1, 60)])
    end = float(survival[whole]) + (minutes - whole) * (
        next_one - float(survival[whole])
    )
    seconds = 60.0 * (
        float(survival[1 : whole + 1].sum()) + (minutes - whole) * next_one
    )
    return end, seconds


def _allocation(option: tuple[int, int, float, float]) -> Allocation:
    market, count, bid, price = option
    return Allocation(
        market=market, count=count, bid=bid, price=price, hour_left_s=HOUR_S
    )


def _text(state: PlannerState, add: Option, dropped: int) -> str:
    parts = []
    if dropped:
        parts.append(f"give back {dropped} allocation{'s' if dropped > 1 else ''}")
    if add is None:
        parts.append("rent nothing")
    else:
        market, count, bid, _ = add
        how = "on demand" if math.isinf(bid) else f"with bid {bid:.4f}"
        parts.append(f"rent {count} in {state.markets[market].name} {how}")
    return " and ".join(parts)
