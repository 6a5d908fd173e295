# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Auction market and its simulator, by the rules that AWS had until 2017.

Rules: a request takes a bid that is at least the price. The price at the start of each
hour of a machine is the price of that hour. The market evicts machines when the price
is above their bid, two minutes after a warning, and refunds the interrupted hour. The
user pays a whole hour when he gives a machine back. The two minutes after the warning
serve to save the state; they do no work here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._beta import Evictions
from aikido_torch.market._errors import MarketError
from aikido_torch.market._planner import (
    HOUR_S,
    Allocation,
    Market,
    Planner,
    PlannerState,
    Work,
)
from aikido_torch.market._traces import PriceTrace

__all__ = [
    "AuctionMarket",
    "AuctionPolicy",
    "AuctionRun",
    "BidBrain",
    "BidOnDemand",
    "OnDemandMachines",
    "simulate_auction",
]

# Bids above the price that a planner compares, in USD per hour.
BID_DELTAS = (0.0, *(float(x) for x in np.geomspace(0.0001, 0.4, 19).round(6)))
_DAY_S = 86400.0


@dataclass
class AuctionMarket:
    """One market with the history that a planner may use at any time.

    Attributes:
        trace: the prices.
        kind: type of the machines.
        on_demand: USD per hour of an on-demand machine.
        deltas: bids above the price that are compared.
        window_s: seconds of the past that count for the probability of eviction.
    """

    trace: PriceTrace
    kind: str
    on_demand: float
    deltas: tuple[float, ...] = BID_DELTAS
    window_s: float = 60 * _DAY_S
    _evictions: Evictions = field(init=False, repr=False)
    _deltas: NDArray[np.float64] = field(init=False, repr=False)
    _day_median: tuple[int, float] = field(init=False, repr=False, default=(-1, 0.0))
    _tables: dict[tuple[int, bool], NDArray[np.float64]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._evictions = Evictions(self.trace, self.deltas)
        self._deltas = np.array(self.deltas)

    def at(self, now_s: float) -> Market:
        """The market at a time; the tables change once a day."""
        day = int(now_s // _DAY_S)
        price = self.trace.price_at(now_s)
        is_low = price <= self._median(now_s)
        if (day, is_low) not in self._tables:
            self._tables[day, is_low] = self._evictions.survival(
                day * _DAY_S, is_low, window_s=self.window_s
            )
        return Market(
            name=self.trace.name,
            kind=self.kind,
            price=price,
            deltas=self._deltas,
            survival=self._tables[day, is_low],
            on_demand=self.on_demand,
        )

    def _median(self, now_s: float) -> float:
        """Median price of the last day, computed once an hour."""
        hour = int(now_s // HOUR_S)
        if self._day_median[0] != hour:
            times = np.arange(hour * HOUR_S - _DAY_S, hour * HOUR_S + 1.0, 3600.0)
            places = np.searchsorted(self.trace.times_s, times, side="right") - 1
            prices = self.trace.usd_per_hour[np.maximum(places, 0)]
            self._day_median = (hour, float(np.median(prices)))
        return self._day_median[1]


class AuctionPolicy(Protocol):
    """Interface of a policy for the auction market."""

    def decide(
        self, state: PlannerState
    ) -> tuple[Sequence[bool], Allocation | None, str]:
        """Allocations to keep, the allocation to add or None, and the reason."""


class BidBrain:
    """The planner as a policy."""

    def __init__(self, work: Work) -> None:
        self._planner = Planner(work)

    def decide(
        self, state: PlannerState
    ) -> tuple[Sequence[bool], Allocation | None, str]:
        """The cheapest plan."""
        plan = self._planner.decide(state)
        return plan.keep, plan.add, plan.reason


class BidOnDemand:
    """All machines in the cheapest market of the moment, with the on-demand price as
    bid."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def decide(
        self, state: PlannerState
    ) -> tuple[Sequence[bool], Allocation | None, str]:
        """Keeps all; rents after an eviction, if a price is below on demand."""
        keep = [True] * len(state.allocations)
        if keep:
            return keep, None, "machines run"
        prices = [
            market.price
            if market.on_demand is not None and market.price <= market.on_demand
            else math.inf
            for market in state.markets
        ]
        best = int(np.argmin(prices))
        if math.isinf(prices[best]):
            return keep, None, "all prices are above on demand"
        bid = state.markets[best].on_demand
        assert bid is not None
        add = _whole_job(self._work, best, bid, prices[best])
        return keep, add, "the cheapest market"


class OnDemandMachines:
    """All machines on demand, of the cheapest market."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def decide(
        self, state: PlannerState
    ) -> tuple[Sequence[bool], Allocation | None, str]:
        """Rents once, and keeps."""
        keep = [True] * len(state.allocations)
        if keep:
            return keep, None, "machines run"
        prices = [m.on_demand or math.inf for m in state.markets]
        best = int(np.argmin(prices))
        return keep, _whole_job(self._work, best, math.inf, prices[best]), "on demand"


def _whole_job(work: Work, market: int, bid: float, price: float) -> Allocation:
    return Allocation(
        market=market,
        count=work.max_machines,
        bid=bid,
        price=price,
        hour_left_s=HOUR_S,
    )


def with_checkpoints(
    work: Work, *, share: float, interval_s: float, restart_s: float
) -> Work:
    """The work model of a job that writes checkpoints instead of being elastic.

    Args:
        share: part of the run time that writing takes.
        interval_s: seconds between checkpoints; half of them is lost by an eviction.
        restart_s: seconds from new machines to the first step.
    """
    return Work(
        rates={kind: rate * (1.0 - share) for kind, rate in work.rates.items()},
        max_machines=work.max_machines,
        scaling=work.scaling,
        eviction_s=interval_s / 2 + restart_s,
        resize_s=work.resize_s,
        reliable_usd_per_hour=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class AuctionRun:
    """Result of a simulated job.

    Attributes:
        usd: cost of all machines.
        items: items that were done.
        seconds: from the start to the end.
        paid_hours: machine hours that were paid.
        free_hours: machine hours that were refunded after an eviction.
        evictions: evicted allocations.
        events: (seconds, usd so far, machines, reason) of each change.
    """

    usd: float
    items: float
    seconds: float
    paid_hours: float
    free_hours: float
    evictions: int
    events: list[tuple[float, float, int, str]] = field(repr=False)

    @property
    def usd_per_item(self) -> float:
        """Cost per unit of work."""
        return self.usd / self.items

    @property
    def free_share(self) -> float:
        """Part of the machine hours that was refunded."""
        hours = self.paid_hours + self.free_hours
        return self.free_hours / hours if hours else 0.0


@dataclass
class _Machines:
    """A running allocation."""

    market: int
    count: int
    bid: float
    price: float
    hour_start: float
    evicted_at: float
    rate: float

    def allocation(self, now: float) -> Allocation:
        left = self.hour_start + HOUR_S - now
        return Allocation(
            market=self.market,
            count=self.count,
            bid=self.bid,
            price=self.price,
            hour_left_s=left if left > 1e-6 else 0.0,
        )


def simulate_auction(
    work: Work,
    policy: AuctionPolicy,
    markets: Sequence[AuctionMarket],
    *,
    items: float,
    start_s: float,
    period_s: float = 120.0,
) -> AuctionRun:
    """Runs a job of `items` from `start_s` on, on recorded prices.

    Args:
        period_s: seconds between decisions while machines could be added.

    Raises:
        MarketError: the prices end before the job.
    """
    return _AuctionJob(work, policy, markets, start_s, period_s).run(items)


class _AuctionJob:
    """State of one simulated job."""

    def __init__(
        self,
        work: Work,
        policy: AuctionPolicy,
        markets: Sequence[AuctionMarket],
        start_s: float,
        period_s: float,
    ) -> None:
        self._work, self._policy, self._markets = work, policy, markets
        self._start = self._now = start_s
        self._period = period_s
        self._end = min(float(market.trace.times_s[-1]) for market in markets)
        self._held: list[_Machines] = []
        self._paused_until = start_s
        self._usd = self._done = self._paid = self._free = 0.0
        self._evictions = 0
        self._events: list[tuple[float, float, int, str]] = []

    def run(self, items: float) -> AuctionRun:
        while True:
            self._evict()
            if self._room() or any(self._is_ending(one) for one in self._held):
                self._decide()
            until = self._next_time()
            rate = self._rate()
            ready = max(self._paused_until, self._now)
            ends = ready + (items - self._done) / rate if rate else math.inf
            if ends <= until:
                self._now = ends
                break
            if until > self._end:
                raise MarketError(
                    f"The prices end {self._end - self._start:g} s after the start of "
                    f"the job, with {items - self._done:g} items left. Give a longer "
                    "trace, an earlier start, or less work."
                )
            self._done += rate * max(0.0, until - ready)
            self._now = until
        seconds = self._now - self._start
        reliable = self._work.reliable_usd_per_hour * seconds / HOUR_S
        return AuctionRun(
            usd=self._usd + reliable,
            items=items,
            seconds=seconds,
            paid_hours=self._paid,
            free_hours=self._free,
            evictions=self._evictions,
            events=self._events,
        )

    def _room(self) -> bool:
        return sum(one.count for one in self._held) < self._work.max_machines

    def _is_ending(self, one: _Machines) -> bool:
        return one.hour_start + HOUR_S - self._now <= 1e-6

    def _rate(self) -> float:
        total = float(sum(one.count for one in self._held))
        phi = float(self._work.efficiency(np.array(total)))
        return phi * sum(one.count * one.rate for one in self._held)

    def _next_time(self) -> float:
        times = [min(one.evicted_at, one.hour_start + HOUR_S) for one in self._held]
        if self._room():
            times.append(self._now + self._period)
        return min(times)

    def _evict(self) -> None:
        gone = [one for one in self._held if one.evicted_at <= self._now + 1e-6]
        for one in gone:
            self._held.remove(one)
            used = (self._now - one.hour_start) / HOUR_S
            self._usd -= one.count * one.price
            self._paid -= one.count
            self._free += one.count * used
            self._evictions += 1
        if gone:
            self._paused_until = self._now + self._work.eviction_s
            self._note(f"{len(gone)} allocations were evicted; the hour is refunded.")

    def _decide(self) -> None:
        state = PlannerState(
            markets=[market.at(self._now) for market in self._markets],
            allocations=[one.allocation(self._now) for one in self._held],
        )
        keep, add, reason = self._policy.decide(state)
        kept = []
        for one, is_kept in zip(self._held, keep, strict=True):
            if not self._is_ending(one):
                kept.append(one)
            elif is_kept:
                one.hour_start = self._now
                if not math.isinf(one.bid):
                    one.price = self._markets[one.market].trace.price_at(self._now)
                self._pay(one)
                kept.append(one)
        is_changed = len(kept) != len(self._held) or add is not None
        self._held = kept
        if add is not None:
            self._rent(add)
        if is_changed:
            self._note(reason)

    def _rent(self, add: Allocation) -> None:
        market = self._markets[add.market]
        if math.isinf(add.bid):
            price, evicted_at = market.on_demand, math.inf
        else:
            price = market.trace.price_at(self._now)
            evicted_at = market.trace.first_above(add.bid + 1e-9, self._now)
            if evicted_at <= self._now:
                raise MarketError(
                    f"The policy bids {add.bid:g} USD in {market.trace.name}, below "
                    f"the price of {price:g} USD; bid at least the price."
                )
        one = _Machines(
            market=add.market,
            count=add.count,
            bid=add.bid,
            price=price,
            hour_start=self._now,
            evicted_at=evicted_at,
            rate=self._work.rate(market.kind),
        )
        self._held.append(one)
        self._pay(one)
        paused = max(self._paused_until, self._now)
        self._paused_until = paused + self._work.resize_s

    def _pay(self, one: _Machines) -> None:
        self._usd += one.count * one.price
        self._paid += one.count

    def _note(self, reason: str) -> None:
        machines = sum(one.count for one in self._held)
        self._events.append((self._now - self._start, self._usd, machines, reason))
