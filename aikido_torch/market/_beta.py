# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Probability of eviction in an auction market, from recorded prices.

beta(delta) is the share of start times at which some later price within the horizon is
above the price at the start plus delta. After BidBrain (Harlap et al., EuroSys 2017);
the symbols are recalled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aikido_torch.market._errors import MarketError
from aikido_torch.market._traces import PriceTrace

__all__ = [
    "BetaTable",
    "Evictions",
    "beta_table",
]

# Bids above the price, in USD per hour.
DELTAS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4)
_ROUND_OFF = 1e-9


@dataclass(frozen=True, kw_only=True)
class BetaTable:
    """beta by delta for one market.

    Attributes:
        market: name of the market.
        deltas: USD per hour that the bid is above the price.
        betas: probability of eviction within the horizon, for each delta.
        minutes: median minutes to eviction of evicted starts; NaN without any.
        starts: number of start times.
    """

    market: str
    deltas: tuple[float, ...]
    betas: tuple[float, ...]
    minutes: tuple[float, ...]
    starts: int


def beta_table(
    trace: PriceTrace,
    deltas: Sequence[float] = DELTAS,
    *,
    horizon_s: float = 3600.0,
    every_s: float = 600.0,
) -> BetaTable:
    """Table of `trace`, with start times every `every_s` from the first change on.

    A start counts if its whole horizon lies before the last change. Prices are compared
    as floating-point numbers, without a tolerance.

    Raises:
        MarketError: the trace is shorter than the horizon, or a delta is negative.
    """
    if any(delta < 0 for delta in deltas):
        raise MarketError(f"delta is {min(deltas)}; a bid is not below the price.")
    if trace.span_s < horizon_s:
        raise MarketError(
            f"{trace.name}: the trace lasts {trace.span_s:g} s, less than the horizon "
            f"of {horizon_s:g} s; give a longer trace or a shorter horizon."
        )
    times = trace.times_s
    starts = np.arange(times[0], times[-1] - horizon_s + _ROUND_OFF, every_s)
    first = np.searchsorted(times, starts, side="right")
    last = np.searchsorted(times, starts + horizon_s, side="right")
    prices = trace.usd_per_hour
    now = prices[first - 1]
    found = [_first_above(prices, first, last, now + delta) for delta in deltas]
    betas = tuple(float(np.mean(place >= 0)) for place in found)
    waits: list[NDArray[np.float64]] = [
        (times[place[place >= 0]] - starts[place >= 0]) / 60
        if (place >= 0).any()
        else np.empty(0)
        for place in found
    ]
    return BetaTable(
        market=trace.name,
        deltas=tuple(deltas),
        betas=betas,
        minutes=tuple(float(np.median(w)) if len(w) else float("nan") for w in waits),
        starts=len(starts),
    )


def _first_above(
    prices: NDArray[np.float64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    limits: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Index of the first price in [first, last) above the limit; else -1."""
    found = np.full(len(first), -1)
    place = first.copy()
    left = np.flatnonzero(place < last)
    while len(left):
        above = prices[place[left]] > limits[left]
        found[left[above]] = place[left[above]]
        left = left[~above]
        place[left] += 1
        left = left[place[left] < last[left]]
    return found


@dataclass
class Evictions:
    """Minutes to eviction from each start time of a trace, for many bids.

    Made once for a whole trace. `survival` uses only starts whose hour has passed by a
    given time, so a simulated planner sees no future.

    Attributes:
        trace: the prices.
        deltas: ascending, USD per hour that the bid is above the price.
        every_s: seconds between start times.
    """

    trace: PriceTrace
    deltas: tuple[float, ...]
    every_s: float = 600.0
    _minutes: NDArray[np.int16] = field(init=False, repr=False)
    _is_low: NDArray[np.bool_] = field(init=False, repr=False)

    HOUR = 60  # minutes of the horizon

    def __post_init__(self) -> None:
        times, prices = self.trace.times_s, self.trace.usd_per_hour
        starts = np.arange(times[0], times[-1] - 3600, self.every_s)
        grid = np.arange(times[0], times[-1], 60.0)
        by_minute = prices[np.searchsorted(times, grid, side="right") - 1]
        stride = round(self.every_s / 60)
        rows = np.lib.stride_tricks.sliding_window_view(by_minute[1:], self.HOUR)
        rows = rows[::stride][: len(starts)]
        now = by_minute[::stride][: len(rows)]
        high = np.maximum.accumulate(rows, axis=1) - now[:, None]
        self._minutes = np.stack(
            [(high <= delta + _ROUND_OFF).sum(axis=1) for delta in self.deltas]
        ).astype(np.int16)
        self._is_low = now <= _recent_median(now, round(86400 / self.every_s))

    def survival(
        self, now_s: float, is_low: bool, *, window_s: float, weight: float = 12.0
    ) -> NDArray[np.float64]:
        """Shape (deltas, 61): probability to live at least so many whole minutes.

        Args:
            now_s: the present; later prices are not used.
            is_low: whether the price is at most its median of the last day.
            window_s: seconds of the past that count.
            weight: starts that the table of both kinds of price counts as, in the table
                of one kind. The prior of both is one start that is evicted half-way.
        """
        begin = self.trace.times_s[0]
        last = int(max(0, (now_s - 3600 - begin) // self.every_s))
        first = int(max(0, (now_s - window_s - begin) // self.every_s))
        part = self._minutes[:, first:last]
        kind = self._is_low[first:last] == is_low
        both = _at_least(part, np.linspace(1.0, 0.0, self.HOUR + 1)[None], 1.0)
        return _at_least(part[:, kind], both, weight)


def _at_least(
    minutes: NDArray[np.int16], prior: NDArray[np.float64], weight: float
) -> NDArray[np.float64]:
    rows = []
    for row in minutes:
        counts = np.bincount(row, minlength=61)[:61]
        rows.append(counts[::-1].cumsum()[::-1])
    counted = np.array(rows, dtype=np.float64)
    return np.asarray((counted + weight * prior) / (minutes.shape[1] + weight))


def _recent_median(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Median of the last `window` values at each place; coarse at the begin."""
    padded = np.concatenate([np.full(window - 1, values[0]), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)
    return np.asarray(np.median(windows[:, ::6], axis=1))
