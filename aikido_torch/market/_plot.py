# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Pictures of a simulated job: cost and machines over time, and prices or capacity."""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aikido_torch._figures import new_figure, save_figure
from aikido_torch.market._auction import AuctionMarket, AuctionRun
from aikido_torch.market._capacity import CapacityRun
from aikido_torch.market._deadline import DeadlineJob, Machine

__all__ = ["plot_auction", "plot_capacity"]

_INCHES = (9.0, 7.0)
_INSTEAD = "read the table of changes"


def plot_auction(
    path: str | os.PathLike[str],
    run: AuctionRun,
    markets: Sequence[AuctionMarket],
    *,
    start_s: float,
) -> None:
    """Draws cost, machines and the prices of the markets over hours.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    figure = new_figure("simulated jobs", inches=_INCHES, instead=_INSTEAD)
    cost, machines, price = figure.subplots(3, 1, sharex=True)
    hours = [event[0] / 3600 for event in run.events]
    cost.step(hours, [event[1] for event in run.events], where="post")
    cost.set_ylabel("USD so far")
    machines.step(hours, [event[2] for event in run.events], where="post")
    machines.set_ylabel("machines")
    for market in markets:
        times, prices = market.trace.times_s, market.trace.usd_per_hour
        part = (times >= start_s) & (times <= start_s + run.seconds)
        price.step(
            (times[part] - start_s) / 3600,
            prices[part],
            where="post",
            label=market.trace.name,
            linewidth=0.8,
        )
    price.set_yscale("log")
    price.set_ylabel("USD per hour")
    price.set_xlabel("hours")
    price.legend(fontsize="small")
    save_figure(figure, path)


def plot_capacity(
    path: str | os.PathLike[str],
    run: CapacityRun,
    job: DeadlineJob,
    available: NDArray[np.bool_],
    gap_s: float,
    *,
    start: int,
) -> None:
    """Draws cost, the machine in use, and the regions with capacity over hours.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    figure = new_figure("simulated jobs", inches=_INCHES, instead=_INSTEAD)
    cost, machine, regions = figure.subplots(3, 1, sharex=True)
    times = [0.0, *(event[0] for event in run.events), run.done_s]
    kinds = [Machine.NONE, *(event[1] for event in run.events)]
    prices = {
        Machine.NONE: 0.0,
        Machine.SPOT: job.spot_usd_per_hour,
        Machine.ON_DEMAND: job.on_demand_usd_per_hour,
    }
    spent = np.diff(times) / 3600 * [prices[kind] for kind in kinds]
    hours = np.array(times) / 3600
    cost.plot(hours, np.concatenate([[0.0], np.cumsum(spent)]))
    cost.set_ylabel("USD so far")
    machine.step(hours, [*kinds, kinds[-1]], where="post")
    machine.set_yticks(list(Machine), [kind.name.lower() for kind in Machine])
    end = start + int(run.done_s / gap_s) + 1
    regions.imshow(
        available[:, start:end],
        aspect="auto",
        interpolation="nearest",
        cmap="Greens",
        vmin=0,
        vmax=1,
        extent=(0, run.done_s / 3600, len(available) - 0.5, -0.5),
    )
    regions.set_ylabel("region with capacity")
    regions.set_xlabel("hours")
    save_figure(figure, path)
