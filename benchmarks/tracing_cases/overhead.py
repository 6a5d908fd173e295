# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What tracing costs a step: without it, watched, and while all is recorded."""

import gc
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import trace
from aikido_torch.testing import run_ranks
from benchmarks.common import Result

SIZE = 4
# The second without it says how much chance there is.
ARMS = ("without", "without again", "watched", "traced")
DISARMED_BAR, ARMED_BAR = 1.005, 1.03


def one_rank(rank: int, size: int, blocks: int, steps: int) -> dict[str, list[float]]:
    """Blocks of steps of each arm in turn; the seconds of each step of each block."""
    torch.manual_seed(0)
    width = 512
    layers = [torch.nn.Linear(width, width) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(32, width)
    seen: dict[str, list[float]] = {arm: [] for arm in ARMS}

    def run() -> float:
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    gc.disable()
    for block in range(blocks + 1):
        for arm in ARMS if block % 2 else ARMS[::-1]:
            watch = None if arm.startswith("without") else trace.watch(model, optimizer)
            if arm == "traced":
                trace.start()
            dist.barrier()
            taken = run()
            trace.stop()
            trace.take()
            if watch is not None:
                watch.remove()
            if block > 0:  # the first is a warm-up
                seen[arm].append(taken)
    return seen


def measure(blocks: int, steps: int) -> list[Result]:
    """Medians of the ratios to the block without it of the same turn."""
    ranks = run_ranks(SIZE, one_rank, blocks, steps, deadline=600)
    results = []
    for arm, bar in zip(ARMS[1:], (None, DISARMED_BAR, ARMED_BAR), strict=True):
        ratios = [
            taken / without
            for rank in ranks
            for taken, without in zip(rank[arm], rank["without"], strict=True)
        ]
        usual = statistics.median(t for rank in ranks for t in rank["without"])
        results.append(
            Result.judge(
                f"a step {arm}, {blocks} blocks of {steps}, 4 ranks on loopback",
                unit="ms",
                value=statistics.median(ratios) * usual * 1e3,
                reference=usual * 1e3,
                bar=bar,
            )
        )
    return results
