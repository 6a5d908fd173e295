# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Recorded markets: paths of prices, and samples of capacity."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._errors import MarketError

__all__ = ["CapacityTrace", "PriceTrace"]


@dataclass(frozen=True, kw_only=True)
class PriceTrace:
    """Prices of one type of machine in one zone, as change points.

    Attributes:
        name: name of the market, such as "us-east-1a c3.xlarge".
        times_s: shape (n,), ascending, in seconds.
        usd_per_hour: shape (n,), the price from each time on; at least 0.
    """

    name: str
    times_s: NDArray[np.float64] = field(repr=False)
    usd_per_hour: NDArray[np.float64] = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.times_s) == 0:
            raise MarketError(f"{self.name}: the market is empty; it has no price.")
        if len(self.times_s) != len(self.usd_per_hour):
            raise MarketError(
                f"{self.name}: {len(self.times_s)} times and {len(self.usd_per_hour)} "
                "prices; give one price for each time."
            )
        if np.any(np.diff(self.times_s) <= 0):
            place = int(np.argmax(np.diff(self.times_s) <= 0)) + 1
            raise MarketError(
                f"{self.name}: change {place + 1} comes at {self.times_s[place]:g} s, "
                f"not after {self.times_s[place - 1]:g} s; sort the times."
            )
        if not np.all(np.isfinite(self.usd_per_hour)) or np.any(self.usd_per_hour < 0):
            raise MarketError(f"{self.name}: a price is negative or not a number.")

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last change."""
        return float(self.times_s[-1] - self.times_s[0])

    def index_at(self, time_s: float) -> int:
        """Index of the change that the price at this time comes from."""
        return int(np.searchsorted(self.times_s, time_s, side="right")) - 1

    def price_at(self, time_s: float) -> float:
        """The price in USD per hour; before the first change, the first price."""
        return float(self.usd_per_hour[max(0, self.index_at(time_s))])

    def first_above(self, bid: float, time_s: float) -> float:
        """First time at or after `time_s` with a price above `bid`; else infinity."""
        index = max(0, self.index_at(time_s))
        if self.usd_per_hour[index] > bid:
            return time_s
        size = 64
        while index < len(self.times_s):
            above = self.usd_per_hour[index : index + size] > bid
            if above.any():
                return float(self.times_s[index + int(above.argmax())])
            index += size
            size *= 4
        return float("inf")


@dataclass(frozen=True, kw_only=True)
class CapacityTrace:
    """Samples of the number of available machines of one type in one zone.

    Attributes:
        name: name of the market.
        gap_s: seconds between two samples.
        counts: shape (n,), integers from 0.
    """

    name: str
    gap_s: float
    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.counts) == 0:
            raise MarketError(f"{self.name}: the market is empty; it has no sample.")
        if not self.gap_s > 0:
            raise MarketError(
                f"{self.name}: the gap of samples is {self.gap_s}; it is above 0 s."
            )

    def has(self, count: int) -> NDArray[np.bool_]:
        """Shape (n,): whether at least `count` machines are available."""
        return self.counts >= count
