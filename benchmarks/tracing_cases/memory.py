# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Growth of memory while tracing is armed and disarmed repeatedly."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from aikido_torch import trace
from aikido_torch._backend import recorder_of_process
from aikido_torch.testing import run_ranks
from aikido_torch.trace.record import _record
from benchmarks.common import Result

SIZE = 2
# Allowed growth of resident memory over the steps, in which no span is taken: with
# torch in memory, 17 bytes for each of 100,000 steps.
BAR = 1.005
REARM_EVERY = 50  # number of steps
FILLING = 12_000  # calls that fill the rings of the recording threads


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def one_rank(rank: int, size: int, steps: int) -> tuple[int, int]:
    """Resident bytes after the rings were full, and after `steps` more steps.

    Tracing is armed and disarmed all the time. Recorded spans are taken only in the
    beginning, after the rings have been filled once.
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
    _record.take()
    before = run(FILLING)
    return before, run(steps)


def judge(sizes: Sequence[tuple[int, int]], steps: int) -> Result:
    """Result from the values of `one_rank` on each rank: the largest before and
    after.
    """
    return Result.judge(
        f"resident memory after {steps:,} steps, armed for half of each "
        f"{REARM_EVERY}, against {FILLING:,}",
        unit="MiB",
        value=max(after for _, after in sizes) / 2**20,
        reference=max(before for before, _ in sizes) / 2**20,
        bar=BAR,
    )


def measure(steps: int) -> Result:
    """Measures `steps` steps of an allreduce each, on two ranks."""
    return judge(run_ranks(SIZE, one_rank, steps, deadline=580), steps)
