# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Elastic jobs on this machine: bulk deaths, notices, joins and churn.

Each step has a fixed time of computation, in which the member sleeps. So eight members
fit on two cores. A step lasts from the end of the step before until its own end.
"""

import itertools
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import torch._dynamo  # optimizers need it; so the members get it from their parent
import torch.distributed as dist
import typer
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from aikido_torch import elastic
from aikido_torch.testing import run_ranks
from benchmarks import common

WORK_S = 0.05
# All processes of a machine have the same clock.
now_s = time.monotonic


@dataclass(frozen=True)
class Life:
    """Life of a member, in steps of the job."""

    role: str = "transient"
    joins_at: int | None = None
    dies_at: int | None = None
    notice_at: int | None = None


@dataclass
class Record:
    """Measurements of one member, by the machine's clock in seconds.

    Attributes:
        began: time of the call of `join`.
        ends: end of each committed step, by its number.
        repeats: numbers of the steps that were repeated.
    """

    began: float = 0.0
    ends: dict[int, float] = field(default_factory=dict)
    repeats: list[int] = field(default_factory=list)


def member(
    rank: int, size: int, address: str, lives: Sequence[Life], until: int, seed: int
) -> Record:
    """Program of one member."""
    life, record = lives[rank], Record()
    host, port = address.split(":")
    marks = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    data = torch.randn(8192, 32)
    loader = DataLoader(TensorDataset(data, data[:, :1]), batch_size=4, shuffle=True)
    if life.joins_at is not None:
        marks.wait([f"begun/{life.joins_at}"])
    record.began = now_s()
    job = elastic.join(
        model,
        optimizer,
        loader,
        endpoint=address,
        role=life.role,
        host=f"host {rank}",
        min_members=sum(each.joins_at is None for each in lives),
        seed=seed,
    )
    for step in job.steps(until=until):
        marks.set(f"begun/{step.number}", "")
        if step.number == life.notice_at:
            job.evict()
        if step.is_repeat:
            record.repeats.append(step.number)
        for x, y in step:
            time.sleep(WORK_S)
            if step.number == life.dies_at:
                marks.set(f"killed/{step.number}", repr(now_s()))
                os.kill(os.getpid(), signal.SIGKILL)
            torch.nn.functional.mse_loss(job.model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        record.ends[step.number] = now_s()  # a failed step comes again
    return record


def run(
    lives: Sequence[Life], until: int, seed: int
) -> tuple[list[Record | None], dist.TCPStore]:
    """Records of all members; None for dead members."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    records = run_ranks(
        len(lives),
        member,
        f"127.0.0.1:{store.port}",
        lives,
        until,
        seed,
        backend=None,
        may_die=[i for i, life in enumerate(lives) if life.dies_at is not None],
        deadline=60.0 + until * WORK_S * 10,
    )
    return records, store


def step_times(record: Record) -> dict[int, float]:
    """Seconds of each step of a member, by its number."""
    numbers = sorted(record.ends)
    return {
        n: record.ends[n] - record.ends[before]
        for before, n in itertools.pairwise(numbers)
    }


def longest_in_medians(records: Sequence[Record], begin: int, end: int) -> float:
    """Longest step in a range, divided by the median of all steps of its member."""
    worst = 0.0
    for record in records:
        times = step_times(record)
        some = [seconds for n, seconds in times.items() if begin <= n <= end]
        if some:
            worst = max(worst, max(some) / statistics.median(times.values()))
    return worst


RELIABLE = Life(role="reliable")


def kill_all(seeds: int) -> list[common.Result]:
    """All six transient members of eight die at once."""
    delays, lost = [], 0
    for seed in range(seeds):
        at = 10 + seed % 7
        lives = [RELIABLE, RELIABLE, *[Life(dies_at=at)] * 6]
        records, store = run(lives, at + 10, seed)
        killed = float(store.get(f"killed/{at}").decode())
        alive = [record for record in records if record is not None]
        delays.append(max(record.ends[at] for record in alive) - killed)
        lost = max(lost, *(len(record.repeats) for record in alive))
    name = f"kill -9 of 6 of 8 members, worst of {seeds}"
    return [
        result(f"{name}, to the next committed step", "s", max(delays), 1.0),
        result(f"{name}, steps lost", "steps", lost, 1.0),
    ]


def warned() -> list[common.Result]:
    """Six transient members of eight have a notice in the same step."""
    lives = [RELIABLE, RELIABLE, *[Life(notice_at=20)] * 6]
    stay = [r for r in run(lives, 50, 0)[0][:2] if r is not None]
    name = "notice to 6 of 8 members"
    longest = longest_in_medians(stay, 20, 25)
    lost = max(len(record.repeats) for record in stay)
    return [
        result(f"{name}, longest step", "medians", longest, 2.0),
        result(f"{name}, steps lost", "steps", lost, 0.0),
    ]


def join_four() -> list[common.Result]:
    """Four processes join four members."""
    lives = [RELIABLE, RELIABLE, Life(), Life(), *[Life(joins_at=20)] * 4]
    records = [record for record in run(lives, 80, 0)[0] if record is not None]
    first = min(min(record.ends) for record in records[4:])
    last = max(min(record.ends) for record in records[4:])
    longest = longest_in_medians(records[:4], first - 1, last + 1)
    starts = max(r.ends[min(r.ends)] - r.began for r in records[4:])
    return [
        result("join of 4, longest step of the others", "medians", longest, 2.0),
        result("join of 4, to the end of their first step", "s", starts, 2.0),
    ]


def churn(steps: int) -> list[common.Result]:
    """A member dies every 60 steps, and another one joins 20 steps later."""
    deaths = range(60, steps - 20, 60)
    lives = [RELIABLE, RELIABLE, Life(dies_at=60)]
    lives += [Life(joins_at=at + 20, dies_at=at + 60) for at in deaths[:-1]]
    lives.append(Life(joins_at=deaths[-1] + 20))
    records = [record for record in run(lives, steps, 0)[0] if record is not None]
    times = list(step_times(records[0]).values())
    goodput = statistics.median(times) * len(times) / sum(times) * 100
    name = f"{len(deaths)} deaths and joins in {steps} steps, goodput"
    return [result(name, "%", goodput, 95.0, is_least=True)]


def result(
    name: str, unit: str, value: float, bar: float, *, is_least: bool = False
) -> common.Result:
    """A row of the table, judged by its bar."""
    return common.Result.judge(
        name,
        unit=unit,
        value=value,
        reference=bar,
        bar=1.0,
        better="higher" if is_least else "lower",
    )


CASES: dict[str, Any] = {
    "kill": lambda seeds, steps: kill_all(seeds),
    "warned": lambda seeds, steps: warned(),
    "join": lambda seeds, steps: join_four(),
    "churn": lambda seeds, steps: churn(steps),
}


def main(
    case: Annotated[list[str], typer.Option(help="kill, warned, join, churn.")] = [  # noqa: B006
        *CASES
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of the case kill.")] = 20,
    steps: Annotated[int, typer.Option(min=140, help="Steps of churn.")] = 1000,
    json: common.JsonPath = None,
) -> None:
    """Measures the pauses of an elastic job."""
    results = [row for name in case for row in CASES[name](seeds, steps)]
    common.report(results, json)


if __name__ == "__main__":
    typer.run(main)
