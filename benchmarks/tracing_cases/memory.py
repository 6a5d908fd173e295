# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Whether tracing needs more and more memory while it is armed and disarmed."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from aikido_torch import trace
from aikido_torch._backend import recorder_of_process
from aikido_torch.testing import run_ranks
from benchmarks.common import Result

SIZE = 2
# Resident memory may grow by so much over the steps, of which no span is taken: with
# torch in it, by 17 bytes for each of 100,000.
BAR = 1.005
REARM_EVERY = 50  # steps
FILLING = 12_000  # calls that fill the rings of the threads that record


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def one_rank(rank: int, size: int, steps: int) -> tuple[int, int]:
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


def judge(sizes: Sequence[tuple[int, int]], steps: int) -> Result:
    """Of what `one_rank` returns on each rank: the largest before and after."""
    return Result.judge(
        f"resident memory after {steps:,} steps, armed for half of each "
        f"{REARM_EVERY}, against {FILLING:,}",
        unit="MiB",
        value=max(after for _, after in sizes) / 2**20,
        reference=max(before for before, _ in sizes) / 2**20,
        bar=BAR,
    )


def measure(steps: int) -> Result:
    """So many steps of an allreduce each, on two ranks."""
    return judge(run_ranks(SIZE, one_rank, steps, deadline=580), steps)
