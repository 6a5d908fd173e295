# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Generator of markets, for use without recorded traces.

Prices: a log of small jumps upwards that decay, on a clock of exponential gaps, and
clusters of spikes with Pareto heights up to ten times the on-demand price and
log-normal durations. Numbers of jumps and spikes are fixed by their rates, and their
times are uniform. So tables of two seeds differ little. The profiles were fitted to
published statistics of AWS prices of 2015.

Capacity: spells of presence and of absence with log-normal durations.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._errors import MarketError
from aikido_torch.market._traces import CapacityTrace, PriceTrace

__all__ = [
    "PriceProfile",
    "PriceStatistics",
    "generate_capacity",
    "generate_prices",
    "price_statistics",
]

_DAY_S = 86400.0
_DECAY_S = 3600.0  # time constant of the decay of a jump
# Lower edges of the classes of jumps, in USD per hour; the last one ends at the next.
JUMP_EDGES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.17)


@dataclass(frozen=True, kw_only=True)
class PriceProfile:
    """Parameters of generated prices.

    Attributes:
        on_demand: USD per hour.
        base: price without jumps and spikes, in USD per hour.
        gap_min: mean minutes between changes of the clock.
        jumps_per_hour: rate of jumps of each class of `JUMP_EDGES`.
        clusters_per_day: rate of clusters of spikes.
        spikes: spikes of a cluster.
        pause_min: mean minutes between spikes of a cluster.
        spike_min: median minutes of a spike.
        spike_sigma: sigma of the logarithm of these minutes.
        height: smallest height of a spike above the base, in on-demand prices.
        exponent: exponent of the Pareto distribution of heights.
    """

    on_demand: float
    base: float
    gap_min: float
    jumps_per_hour: tuple[float, ...]
    clusters_per_day: float
    spikes: float
    pause_min: float
    spike_min: float
    spike_sigma: float
    height: float
    exponent: float

    def scaled(self, factor: float) -> "PriceProfile":
        """The profile with all rates of jumps and clusters times `factor`."""
        return replace(
            self,
            jumps_per_hour=tuple(rate * factor for rate in self.jumps_per_hour),
            clusters_per_day=self.clusters_per_day * factor,
        )


@dataclass(frozen=True, kw_only=True)
class PriceStatistics:
    """Statistics of a price path.

    Attributes:
        mean: time-weighted mean, in on-demand prices.
        above: share of the time above the on-demand price.
        spikes_per_day: spells above the on-demand price.
        spike_min: median minutes of such a spell.
        highest: highest price, in on-demand prices.
        gap_min: median minutes between changes.
    """

    mean: float
    above: float
    spikes_per_day: float
    spike_min: float
    highest: float
    gap_min: float


def price_statistics(trace: PriceTrace, on_demand: float) -> PriceStatistics:
    """Statistics of `trace` beside an on-demand price in USD per hour."""
    times, prices = trace.times_s, trace.usd_per_hour[:-1]
    gaps = np.diff(times)
    above = prices > on_demand
    edges = np.diff(np.concatenate([[0], above.astype(np.int8), [0]]))
    begins, ends = times[np.flatnonzero(edges == 1)], times[np.flatnonzero(edges == -1)]
    return PriceStatistics(
        mean=float(np.average(prices, weights=gaps)) / on_demand,
        above=float(np.average(above, weights=gaps)),
        spikes_per_day=len(begins) / (trace.span_s / _DAY_S),
        spike_min=float(np.median(ends - begins)) / 60 if len(begins) else math.nan,
        highest=float(prices.max()) / on_demand,
        gap_min=float(np.median(gaps)) / 60,
    )


def generate_prices(
    profile: PriceProfile, *, days: float, seed: int, name: str = "generated"
) -> PriceTrace:
    """A price path of so many days; equal arguments give equal paths.

    Raises:
        MarketError: `days` is below one.
    """
    if days < 1:
        raise MarketError(f"days is {days}; a generated market lasts at least one day.")
    random = np.random.default_rng(seed)
    span = days * _DAY_S
    number = int(span / (profile.gap_min * 60) * 1.2) + 100
    clock = np.cumsum(random.exponential(profile.gap_min * 60, number))
    clock = np.round(clock[clock < span], 3)
    prices = profile.base + _jumps(profile, clock, span, random)
    begins, ends, levels = _spikes(profile, span, random)
    is_hidden = np.zeros(len(clock), bool)
    for begin, end in zip(begins, ends, strict=True):
        first, last = np.searchsorted(clock, [begin, end])
        is_hidden[first:last] = True
    after = prices[np.maximum(np.searchsorted(clock, ends) - 1, 0)]
    times = np.concatenate([[0.0], clock[~is_hidden], begins, ends])
    values = np.concatenate([[profile.base], prices[~is_hidden], levels, after])
    times, places = np.unique(times, return_index=True)
    return PriceTrace(name=name, times_s=times, usd_per_hour=values[places].round(6))


def _jumps(
    profile: PriceProfile,
    clock: NDArray[np.float64],
    span: float,
    random: np.random.Generator,
) -> NDArray[np.float64]:
    """Decaying sum of the jumps at each time of the clock."""
    added = np.zeros(len(clock))
    for low, high, rate in zip(
        JUMP_EDGES[:-1], JUMP_EDGES[1:], profile.jumps_per_hour, strict=True
    ):
        number = round(rate * span / 3600)
        sizes = low * (high / low) ** _even(number, random)
        np.add.at(added, random.integers(0, len(clock), number), sizes)
    kept = np.exp(-np.diff(clock, prepend=0.0) / _DECAY_S)
    total, sums = 0.0, np.empty(len(clock))
    for place in range(len(clock)):
        total = total * kept[place] + added[place]
        sums[place] = total
    return sums


def _spikes(
    profile: PriceProfile, span: float, random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Begins, ends and levels of spikes that do not overlap."""
    clusters = max(1, round(profile.clusters_per_day * span / _DAY_S))
    total = max(1, round(clusters * profile.spikes))
    normal = _normal(_even(total, random))
    lengths = 60 * profile.spike_min * np.exp(profile.spike_sigma * normal)
    heights = profile.height * (1 - _even(total, random)) ** (-1 / profile.exponent)
    levels = np.minimum(profile.base / profile.on_demand + heights, 10.0)
    pauses = random.exponential(60 * profile.pause_min, total)
    starts = np.sort(random.uniform(0, span, clusters))
    begins, now = np.empty(total), 0.0
    for cluster, part in enumerate(np.array_split(np.arange(total), clusters)):
        now = max(now, starts[cluster])
        for spike in part:
            begins[spike] = now
            now += lengths[spike] + pauses[spike]
    ends = begins + lengths
    fits = ends < span
    return begins[fits], ends[fits], levels[fits] * profile.on_demand


def _even(number: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Numbers between 0 and 1 in random order, one in each of `number` equal parts."""
    places = (np.arange(number) + random.random(number)) / max(number, 1)
    random.shuffle(places)
    return places


def _normal(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantiles of the normal distribution, from a table of its density."""
    grid = np.linspace(-5, 5, 4001)
    sums = np.cumsum(np.exp(-(grid**2) / 2))
    return np.asarray(np.interp(shares, sums / sums[-1], grid))


def generate_capacity(
    *,
    days: float,
    seed: int,
    share: float,
    spell_s: float,
    sigma: float = 1.5,
    gap_s: float = 300.0,
    name: str = "generated",
) -> CapacityTrace:
    """Samples of one machine that comes and goes.

    Args:
        share: expected share of the time with capacity, between 0 and 1.
        spell_s: mean seconds of a spell with capacity.
        sigma: sigma of the logarithm of the lengths of spells.
        gap_s: seconds between samples.

    Raises:
        MarketError: an argument is out of its range.
    """
    if not 0 < share < 1:
        raise MarketError(f"share is {share}; it is between 0 and 1.")
    if not (days > 0 and spell_s > 0 and sigma >= 0 and gap_s > 0):
        raise MarketError(
            f"days {days}, spell_s {spell_s}, sigma {sigma} and gap_s {gap_s}: all of "
            "them are above 0."
        )
    random = np.random.default_rng(seed)
    means = (spell_s * (1 - share) / share, spell_s)
    samples = int(days * _DAY_S / gap_s)
    counts = np.zeros(samples, np.int64)
    is_there, now = random.random() < share, 0.0
    while now < samples:
        mean = means[int(is_there)] / gap_s
        length = random.lognormal(math.log(mean) - sigma**2 / 2, sigma)
        if is_there:
            counts[int(now) : int(now + length)] = 1
        now += length
        is_there = not is_there
    return CapacityTrace(name=name, gap_s=gap_s, counts=counts)
