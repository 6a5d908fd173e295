# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Profiles of generated prices, fitted to statistics of AWS prices of 2015.

The statistics are those of c3.xlarge in us-east-1, 2015-03-11 to 2015-08-31: zone 1b is
calm, 1e has brief spikes, and 1a is stormy.
"""

from dataclasses import astuple

import numpy as np

from aikido_torch.market._beta import beta_table
from aikido_torch.market._errors import MarketError
from aikido_torch.market._generate import (
    PriceProfile,
    PriceStatistics,
    generate_prices,
    price_statistics,
)
from aikido_torch.market._traces import PriceTrace

__all__ = ["PROFILES", "TARGETS", "accepted_prices", "deviation"]

# beta for each of `DELTAS`, and statistics of prices.
TARGETS = {
    "calm": (
        (0.4927, 0.2954, 0.1155, 0.0186, 0.0130, 0.0045, 0.0027),
        PriceStatistics(
            mean=0.196,
            above=0.0038,
            spikes_per_day=1.00,
            spike_min=3.5,
            highest=10.0,
            gap_min=5.3,
        ),
    ),
    "brief": (
        (0.5107, 0.2240, 0.0416, 0.0226, 0.0222, 0.0219, 0.0219),
        PriceStatistics(
            mean=0.366,
            above=0.0196,
            spikes_per_day=7.79,
            spike_min=3.6,
            highest=10.0,
            gap_min=4.2,
        ),
    ),
    "stormy": (
        (0.6157, 0.4020, 0.1903, 0.1354, 0.1243, 0.1052, 0.0910),
        PriceStatistics(
            mean=0.904,
            above=0.1933,
            spikes_per_day=9.19,
            spike_min=6.1,
            highest=10.0,
            gap_min=3.3,
        ),
    ),
}
PROFILES = {
    "calm": PriceProfile(
        on_demand=0.21,
        base=0.03275,
        gap_min=7.757,
        jumps_per_hour=(3.63, 0.2625, 0.1131, 0.002378, 0.008467),
        clusters_per_day=0.03122,
        spikes=33.07,
        pause_min=2.0,
        spike_min=3.449,
        spike_sigma=0.8945,
        height=0.897,
        exponent=2.385,
    ),
    "brief": PriceProfile(
        on_demand=0.21,
        base=0.03443,
        gap_min=6.777,
        jumps_per_hour=(1.894, 0.189, 0.01553, 0.000018, 0.00008),
        clusters_per_day=0.2918,
        spikes=26.65,
        pause_min=2.0,
        spike_min=3.6,
        spike_sigma=0.1005,
        height=9.068,
        exponent=2.0,
    ),
    "stormy": PriceProfile(
        on_demand=0.21,
        base=0.033,
        gap_min=4.893,
        jumps_per_hour=(4.875, 0.6256, 0.06568, 0.01076, 0.01947),
        clusters_per_day=0.9649,
        spikes=9.521,
        pause_min=6.0,
        spike_min=6.126,
        spike_sigma=1.784,
        height=1.058,
        exponent=0.9876,
    ),
}
ACCEPTED = 0.2  # largest relative deviation
_MOST_TRIES = 60


def deviation(name: str, trace: PriceTrace) -> float:
    """Largest relative deviation of beta and of the statistics from their targets."""
    betas, wanted = TARGETS[name]
    found = price_statistics(trace, PROFILES[name].on_demand)
    values = np.array([*beta_table(trace).betas, *astuple(found)])
    return float(np.max(np.abs(values / np.array([*betas, *astuple(wanted)]) - 1)))


def accepted_prices(name: str, *, days: float, seed: int) -> PriceTrace:
    """The first generated path, by seed, whose statistics are near their targets.

    Args:
        name: "calm", "brief" or "stormy".
        days: length; short paths are seldom accepted, 173 days usually are.
        seed: equal seeds give equal paths.

    Raises:
        MarketError: there is no such profile, or no path was accepted.
    """
    if name not in PROFILES:
        raise MarketError(
            f"There is no profile {name!r}; there are {', '.join(PROFILES)}."
        )
    for attempt in range(_MOST_TRIES):
        trace = generate_prices(
            PROFILES[name], days=days, seed=seed * 1000 + attempt, name=name
        )
        if deviation(name, trace) <= ACCEPTED:
            return trace
    raise MarketError(
        f"None of {_MOST_TRIES} paths of {days:g} days of {name!r} is within "
        f"{ACCEPTED:.0%} of its statistics; give more days, such as 173."
    )
