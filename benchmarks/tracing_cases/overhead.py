# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What tracing costs a step: without it, watched, and while all is recorded."""

import gc
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import trace
from aikido_torch._backend import recorder_of_process
from aikido_torch.testing import run_ranks
from benchmarks.common import Result

SIZE = 4
# The second without it says how much chance there is.
ARMS = ("without", "without again", "watched", "traced")
DISARMED_BAR, ARMED_BAR = 1.005, 1.03
# Resident memory may grow by so much over armed steps, of which no span is taken.
MEMORY_BAR = 1.02
REARM_EVERY = 50  # steps
FILLING = 12_000  # calls that fill the rings of the threads that record


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


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def memory(rank: int, size: int, steps: int) -> tuple[int, int]:
    """Resident bytes once the rings were full, and after so many steps more.

    It is armed and disarmed all the time; what it records is taken only in the
    beginning, when the rings have been filled once.
    """
    tensor = torch.ones(1 << 10)
    recorder = recorder_of_process()

    def run(steps: int) -> int:
        for step in range(steps):
            recorder.set_step(step)
            if step % REARM_EVERY == 0:
                recorder.arm_steps(step, step + REARM_EVERY // 2)
            dist.all_reduce(tensor.fill_(1.0))
        recorder.arm_steps(0, -1)
        dist.barrier()
        return resident_bytes()

    trace.start()
    for _ in range(FILLING):
        dist.all_reduce(tensor.fill_(1.0))
    trace.stop()
    trace.take()
    before = run(FILLING)
    return before, run(steps)


def measure(blocks: int, steps: int, memory_steps: int) -> list[Result]:
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
    sizes = run_ranks(2, memory, memory_steps, deadline=580)
    results.append(
        Result.judge(
            f"resident memory after {memory_steps:,} steps, armed for half of each "
            f"{REARM_EVERY}, against {FILLING:,}",
            unit="MiB",
            value=max(after for _, after in sizes) / 2**20,
            reference=max(before for before, _ in sizes) / 2**20,
            bar=MEMORY_BAR,
        )
    )
    return results
