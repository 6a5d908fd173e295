# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Commands of `python -m aikido_torch.market`: beta, plan, simulate, compare."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from aikido_torch.market import _show
from aikido_torch.market._auction import AuctionMarket, BidBrain, simulate_auction
from aikido_torch.market._beta import DELTAS, beta_table
from aikido_torch.market._capacity import simulate_capacity
from aikido_torch.market._compare import Line, compare_auction, compare_capacity
from aikido_torch.market._deadline import (
    DeadlineJob,
    DeadlinePlanner,
    JobState,
    Machine,
)
from aikido_torch.market._deadline_policies import SurvivalPolicy
from aikido_torch.market._errors import MarketError
from aikido_torch.market._launch import nnodes, sky_task
from aikido_torch.market._planner import Planner, PlannerState, Work
from aikido_torch.market._read import (
    FORMATS,
    Meaning,
    is_capacity,
    read_capacity,
    read_prices,
)
from aikido_torch.market._survival import Survival

app = typer.Typer(help="Markets: which machines to rent, and when.")

_Files = Annotated[
    list[Path],
    typer.Argument(help="Recorded markets of one kind; fetch-format has the formats."),
]
_Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the result too.")
]
_Meaning = Annotated[
    Meaning, typer.Option(help="Meaning of a sample of capacity: count or absent.")
]
_OnDemand = Annotated[
    float, typer.Option("--on-demand", help="On-demand price in USD per hour.", min=0)
]
_Spot = Annotated[
    float, typer.Option(help="Capacity: spot price in USD per hour.", min=0)
]
_Machines = Annotated[
    int, typer.Option(help="Machines: most of them (prices), or all of them.", min=1)
]
_WorkHours = Annotated[
    float, typer.Option("--work", help="Work in hours on all machines.", min=0.01)
]
_Deadline = Annotated[
    float, typer.Option(help="Capacity: hours to the deadline.", min=0.01)
]
_Overhead = Annotated[
    float, typer.Option(help="Capacity: minutes of a launch without progress.", min=0)
]
_Eviction = Annotated[
    float, typer.Option(help="Prices: seconds lost by an eviction.", min=0)
]
_Resize = Annotated[
    float, typer.Option(help="Prices: seconds lost when machines are added.", min=0)
]
_Reliable = Annotated[
    float, typer.Option(help="Prices: USD per hour of machines that keep the state.")
]


@app.callback()
def _commands() -> None:
    """Markets: which machines to rent, and when."""


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except MarketError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command("beta")
def beta_command(
    files: _Files,
    deltas: Annotated[
        str, typer.Option(help="Bids above the price, in USD per hour.")
    ] = ",".join(f"{delta:g}" for delta in DELTAS),
    horizon: Annotated[float, typer.Option(help="Horizon in seconds.", min=1)] = 3600,
    every: Annotated[
        float, typer.Option(help="Seconds between start times.", min=1)
    ] = 600,
    json_file: _Json = None,
) -> None:
    """Prints the probability of eviction by the bid, from recorded prices."""
    with _errors():
        numbers = _numbers(deltas, "--deltas")
        tables = [
            beta_table(trace, numbers, horizon_s=horizon, every_s=every)
            for path in files
            for trace in read_prices(path)
        ]
        Console().print(_show.beta_rows(tables))
        _write(json_file, [dataclasses.asdict(table) for table in tables])


@app.command("plan")
def plan_command(
    files: _Files,
    on_demand: _OnDemand,
    spot: _Spot = 0.0,
    machines: _Machines = 1,
    work: _WorkHours = 24.0,
    deadline: _Deadline = 36.0,
    overhead: _Overhead = 3.0,
    eviction: _Eviction = 120.0,
    resize: _Resize = 30.0,
    reliable: _Reliable = 0.0,
    meaning: _Meaning = Meaning.COUNT,
    command: Annotated[
        str, typer.Option(help="Command of the job, for --sky.")
    ] = "torchrun train.py",
    accelerators: Annotated[
        str, typer.Option(help="Accelerators of a machine, for --sky.")
    ] = "V100:1",
    sky: Annotated[
        Path | None, typer.Option(help="Write a SkyPilot task to this YAML file.")
    ] = None,
    json_file: _Json = None,
) -> None:
    """Decides at the end of the recorded markets, and prints each alternative."""
    console = Console()
    with _errors():
        if is_capacity(files[0]):
            job = _job(work, deadline, overhead, spot, on_demand, machines)
            names, available, gap_s = _capacity(files, meaning, machines, console)
            name, is_spot, found = _deadline_plan(job, available, gap_s)
            regions = names
        else:
            model = _work(machines, eviction, resize, reliable)
            markets = _markets(files, on_demand)
            now = min(float(market.trace.times_s[-1]) for market in markets)
            plan = Planner(model).decide(
                PlannerState(markets=[market.at(now) for market in markets])
            )
            name, found = plan.reason, plan.alternatives
            is_spot = plan.add is not None and np.isfinite(plan.add.bid)
            place = plan.add.market if plan.add is not None else 0
            regions = [markets[place].trace.name]
        unit = "USD to the end" if is_capacity(files[0]) else "USD per machine second"
        console.print(_show.alternatives_table(found[:12], unit=unit))
        console.print(name, markup=False, highlight=False)
        console.print(f"--nnodes {nnodes(1, machines)}", highlight=False)
        if sky is not None:
            sky.write_text(
                sky_task(
                    command,
                    accelerators=accelerators,
                    machines=machines,
                    regions=regions,
                    is_spot=bool(is_spot),
                )
            )
        _write(json_file, {"reason": name, "alternatives": found})


@app.command("simulate")
def simulate_command(
    files: _Files,
    on_demand: _OnDemand,
    spot: _Spot = 0.0,
    machines: _Machines = 1,
    work: _WorkHours = 24.0,
    deadline: _Deadline = 36.0,
    overhead: _Overhead = 3.0,
    eviction: _Eviction = 120.0,
    resize: _Resize = 30.0,
    reliable: _Reliable = 0.0,
    meaning: _Meaning = Meaning.COUNT,
    start: Annotated[
        float, typer.Option(help="Start of the job, in hours from the first record.")
    ] = 0.0,
    plot: Annotated[
        Path | None, typer.Option(help="File for a picture (.png, .svg, .pdf).")
    ] = None,
    json_file: _Json = None,
) -> None:
    """Runs the planner once on recorded markets, and prints each change."""
    console = Console()
    with _errors():
        if is_capacity(files[0]):
            job = _job(work, deadline, overhead, spot, on_demand, machines)
            names, available, gap_s = _capacity(files, meaning, machines, console)
            rows, facts = _run_capacity(job, names, available, gap_s, start, plot)
        else:
            model = _work(machines, eviction, resize, reliable)
            items = work * 3600 * machines
            rows, facts = _run_auction(
                model, _markets(files, on_demand), items, start, plot
            )
        console.print(_show.events_table(rows, title="changes"))
        console.print(facts, highlight=False)
        _write(json_file, facts | {"events": rows})


_Rows = list[tuple[float, str, str]]


def _run_capacity(
    job: DeadlineJob,
    names: list[str],
    available: NDArray[np.bool_],
    gap_s: float,
    start_h: float,
    plot: Path | None,
) -> tuple[_Rows, dict[str, Any]]:
    first = int(start_h * 3600 / gap_s)
    policy = SurvivalPolicy(job, num_regions=len(names))
    for sample in available[:, :first].T:
        policy.observe(sample, gap_s)
    run = simulate_capacity(job, policy, available, gap_s, start=first)
    if plot is not None:
        from aikido_torch.market._plot import plot_capacity

        plot_capacity(plot, run, job, available, gap_s, start=first)
    rows = [
        (seconds, f"{machine.name.lower()} {names[region]}", reason)
        for seconds, machine, region, reason in run.events
    ]
    return rows, {
        "usd": run.usd,
        "hours": run.done_s / 3600,
        "is_missed": run.is_missed,
        "launches": run.launches,
        "losses": run.losses,
    }


def _run_auction(
    model: Work,
    markets: list[AuctionMarket],
    items: float,
    start_h: float,
    plot: Path | None,
) -> tuple[_Rows, dict[str, Any]]:
    begin = max(float(market.trace.times_s[0]) for market in markets) + start_h * 3600
    run = simulate_auction(model, BidBrain(model), markets, items=items, start_s=begin)
    if plot is not None:
        from aikido_torch.market._plot import plot_auction

        plot_auction(plot, run, markets, start_s=begin)
    rows = [(seconds, str(count), why) for seconds, _, count, why in run.events]
    return rows, {
        "usd": run.usd,
        "hours": run.seconds / 3600,
        "evictions": run.evictions,
        "free_share": run.free_share,
    }


@app.command("compare")
def compare_command(
    files: _Files,
    on_demand: _OnDemand,
    spot: _Spot = 0.0,
    machines: _Machines = 1,
    work: _WorkHours = 24.0,
    deadline: _Deadline = 36.0,
    overhead: _Overhead = 3.0,
    eviction: _Eviction = 120.0,
    resize: _Resize = 30.0,
    reliable: _Reliable = 0.0,
    meaning: _Meaning = Meaning.COUNT,
    starts: Annotated[int, typer.Option(help="Number of start times.", min=1)] = 10,
    json_file: _Json = None,
) -> None:
    """Runs the planner and its rivals on recorded markets, from many start times."""
    console = Console()
    with _errors(), Progress(console=console, transient=True) as progress:
        task = progress.add_task("simulate", total=1.0)

        def on_progress(share: float) -> None:
            progress.update(task, completed=share)

        lines: list[Line]
        if is_capacity(files[0]):
            job = _job(work, deadline, overhead, spot, on_demand, machines)
            _, available, gap_s = _capacity(files, meaning, machines, console)
            lines = compare_capacity(
                job, available, gap_s, starts=starts, on_progress=on_progress
            )
        else:
            lines = compare_auction(
                _work(machines, eviction, resize, reliable),
                _markets(files, on_demand),
                items=work * 3600 * machines,
                starts=starts,
                on_progress=on_progress,
            )
        console.print(_show.compare_rows(lines, title=f"{starts} jobs"))
        _write(json_file, [dataclasses.asdict(line) for line in lines])


@app.command("fetch-format")
def fetch_format_command() -> None:
    """Prints the file formats, and how to record a market of today."""
    typer.echo(FORMATS)


def _work(machines: int, eviction: float, resize: float, reliable: float) -> Work:
    return Work(
        rates={"machine": 1.0},
        max_machines=machines,
        eviction_s=eviction,
        resize_s=resize,
        reliable_usd_per_hour=reliable,
    )


def _job(
    work: float,
    deadline: float,
    overhead: float,
    spot: float,
    on_demand: float,
    machines: int,
) -> DeadlineJob:
    if spot <= 0:
        raise MarketError("A capacity market needs the spot price; give --spot.")
    return DeadlineJob(
        work_s=work * 3600,
        deadline_s=deadline * 3600,
        overhead_s=overhead * 60,
        spot_usd_per_hour=spot * machines,
        on_demand_usd_per_hour=on_demand * machines,
    )


def _markets(files: list[Path], on_demand: float) -> list[AuctionMarket]:
    return [
        AuctionMarket(trace, kind="machine", on_demand=on_demand)
        for path in files
        for trace in read_prices(path)
    ]


def _capacity(
    files: list[Path], meaning: Meaning, machines: int, console: Console
) -> tuple[list[str], NDArray[np.bool_], float]:
    traces = [read_capacity(path, meaning=meaning) for path in files]
    says = {
        Meaning.COUNT: "the number of available machines",
        Meaning.ABSENT: "above 0 when no machine is available",
    }
    console.print(f"A sample is {says[meaning]} (--meaning {meaning}).")
    gaps = {trace.gap_s for trace in traces}
    lengths = {len(trace.counts) for trace in traces}
    if len(gaps) > 1 or len(lengths) > 1:
        raise MarketError(
            f"The {len(files)} files differ: gaps {sorted(gaps)} s, lengths "
            f"{sorted(lengths)} samples. Regions need equal gaps and lengths."
        )
    available = np.stack([trace.has(machines) for trace in traces])
    return [trace.name for trace in traces], available, traces[0].gap_s


def _deadline_plan(
    job: DeadlineJob, available: NDArray[np.bool_], gap_s: float
) -> tuple[str, bool, list[tuple[str, float]]]:
    union = Survival()
    for sample in np.any(available, axis=0).tolist():
        union.observe(bool(sample), gap_s)
    choice = DeadlinePlanner(job, union.hazards()).decide(
        JobState.start(
            job,
            remaining_s=job.deadline_s,
            gap_s=gap_s,
            is_available=bool(union.is_available),
            age_s=union.age_s,
        )
    )
    found = sorted(
        ((machine.name.lower(), cost) for machine, cost in choice.usd.items()),
        key=lambda pair: pair[1],
    )
    return choice.reason, choice.machine == Machine.SPOT, found


def _numbers(text: str, name: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"'{text}'; it takes numbers with commas between them.", param_hint=name
        ) from None


def _write(path: Path | None, content: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    app()
