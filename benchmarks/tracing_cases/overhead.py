# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Cost of tracing per step: without it, watched, and while everything is recorded.

Wall time is measured if each rank has a processor. Ranks that wait for a processor take
30 % more or less from step to step, which hides half a percent in any run of minutes.
Their processor time does not. Both are medians of ratios of neighbouring single steps,
because a machine is faster in one minute than in the next. An arm that equals the first
one shows the effect of chance.

Threads of tracing wake up a few times a second, which single steps do not show. Their
processor time is measured in idle ranks, and added.
"""

import gc
import math
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import trace
from aikido_torch.testing import run_ranks
from aikido_torch.trace.record import _record
from benchmarks.common import Result

SIZE = 4
ARMS = ("without", "without again", "watched", "traced")
DISARMED_BAR, ARMED_BAR = 1.005, 1.03
_BARS = {"watched": DISARMED_BAR, "traced": ARMED_BAR}
_WIDTH = 512  # of four layers: 4.2 MB of gradients
WAIT_S = 10.0
_DEADLINE_S = 1800

Times = dict[str, list[float]]  # seconds of a step, by arm


@dataclass(frozen=True)
class Seen:
    """Measurements of a rank."""

    wall: Times
    processor: Times
    # By arm: seconds of processor time per second, while it only waits.
    waiting: dict[str, float]


def measure_wall(turns: int) -> list[Result]:
    """Wall time, on as many ranks as there are processors."""
    size = min(SIZE, os.cpu_count() or 1)
    ranks = run_ranks(size, one_rank, turns, deadline=_DEADLINE_S)
    return judge("wall time", [rank.wall for rank in ranks], shares_of(ranks))


def measure_processor(turns: int) -> list[Result]:
    """Processor time, on four ranks."""
    ranks = run_ranks(SIZE, one_rank, turns, deadline=_DEADLINE_S)
    times = [rank.processor for rank in ranks]
    # During the wall time of a step, threads take their share of it.
    used = statistics.median(t for each in times for t in each["without"])
    taken = statistics.median(t for rank in ranks for t in rank.wall["without"])
    shares = {arm: share * taken / used for arm, share in shares_of(ranks).items()}
    return judge("processor time", times, shares)


def judge(text: str, ranks: Sequence[Times], shares: dict[str, float]) -> list[Result]:
    """A result for each arm.

    Args:
        text: name of the times.
        ranks: times of each rank.
        shares: share of a step that threads of tracing add, by arm.
    """
    usual = statistics.median(t for rank in ranks for t in rank["without"])
    turns = len(ranks[0]["without"])
    results = []
    for arm in ARMS[1:]:
        ratio, chance = ratio_of(ranks, arm)
        share = shares.get(arm, 0.0)
        results.append(
            Result.judge(
                f"{text} of a step {arm} (+-{chance:.2%}, with {share:.2%} of threads),"
                f" {turns:,} steps, {len(ranks)} ranks on loopback",
                unit="ms",
                value=(ratio + share) * usual * 1e3,
                reference=usual * 1e3,
                bar=_BARS.get(arm),
            )
        )
    return results


def shares_of(ranks: Sequence[Seen]) -> dict[str, float]:
    """Share of a processor that threads of tracing take, by arm: the mean of the
    ranks.
    """
    return {
        arm: statistics.mean(
            max(0.0, rank.waiting[arm] - rank.waiting["without"]) for rank in ranks
        )
        for arm in _BARS
    }


def ratio_of(ranks: Sequence[Times], arm: str) -> tuple[float, float]:
    """Median over turns of an arm's time divided by that without, and its standard
    error.

    A turn counts by the sum over ranks, because a delay of one rank delays all.
    """
    turns = len(ranks[0]["without"])
    ratios = [
        sum(rank[arm][i] for rank in ranks) / sum(rank["without"][i] for rank in ranks)
        for i in range(turns)
    ]
    middle = statistics.median(ratios)
    # For a normal distribution: sigma from the median deviation, and its error.
    sigma = statistics.median(abs(ratio - middle) for ratio in ratios) / 0.6745
    return middle, math.sqrt(math.pi / 2 / turns) * sigma


class Training:
    """A model that trains in steps, traced as an arm requires."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(4)]
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batch = torch.randn(32, _WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()

    @contextmanager
    def traced(self, arm: str, *, listens: bool) -> Iterator[None]:
        """Context of an arm. `listens`: whether a watch listens to requests."""
        watch = None
        if not arm.startswith("without"):
            watch = trace.watch(self.model, self.optimizer, control=listens)
        if arm == "traced":
            trace.start()
        yield
        if watch is not None:
            trace.stop()
            _record.take()
            watch.remove()


def turns_of(count: int) -> Iterator[list[str]]:
    """The arms in a new order each time, equal on all ranks."""
    order = random.Random(0)
    for _ in range(count):
        yield order.sample(ARMS, len(ARMS))


def one_rank(rank: int, size: int, turns: int) -> Seen:
    """Steps of each arm in turn, and then a time of each arm without steps."""
    training = Training()
    wall: Times = {arm: [] for arm in ARMS}
    processor: Times = {arm: [] for arm in ARMS}
    gc.disable()
    for arms in turns_of(turns):
        for arm in arms:
            with training.traced(arm, listens=False):
                # Warms up everything that has changed since the last arm.
                training.step()
                dist.barrier()
                used, begin = time.process_time(), time.perf_counter()
                training.step()
                wall[arm].append(time.perf_counter() - begin)
                processor[arm].append(time.process_time() - used)
    waiting = dict.fromkeys(ARMS, 0.0)
    for arm in ARMS:
        with training.traced(arm, listens=True):
            dist.barrier()
            used = time.process_time()
            time.sleep(WAIT_S)
            waiting[arm] = (time.process_time() - used) / WAIT_S
    return Seen(wall, processor, waiting)
