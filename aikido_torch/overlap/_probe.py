# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Measured times of allreduces on the group's links, while nothing else is sent."""

import math
import statistics
import time

import torch
import torch.distributed as dist

from aikido_torch import _C

__all__ = ["clock_ahead_s", "probe"]

# With four sizes, alpha and beta can be distinguished.
_SIZES = (4 << 10, 32 << 10, 128 << 10, 512 << 10)
_LEAST_SIZES = 2  # number of sizes that are measured in any case
# Repetitions of each size. Their median counts, because an idle link is faster at
# first.
_TIMES = 3
_LONG_S = 0.2  # after a transfer that takes this long, no larger size is measured


def probe(
    group: dist.ProcessGroup | None, *, within_s: float = math.inf
) -> list[tuple[float, float]]:
    """(bytes, seconds) of allreduces, each alone on the links; equal on all ranks.

    All ranks of `group` (None: the default group) call it at the same time. A rank that
    begins early waits for the others, so the shortest time of all ranks counts.

    Args:
        group: None is the default group.
        within_s: limit for the estimated total, in seconds; the smallest value of all
            ranks counts. The two smallest sizes are measured in any case.
    """
    found: list[tuple[float, float]] = []
    spent_s = 0.0
    for num_bytes in _SIZES:
        if len(found) >= _LEAST_SIZES:
            before, seconds = found[-1]
            if spent_s + _TIMES * seconds * num_bytes / before > within_s:
                break
        tensor = torch.zeros(num_bytes // 4)
        times = [_seconds(tensor, group) for _ in range(_TIMES)]
        least = torch.tensor([statistics.median(times), within_s], dtype=torch.float64)
        dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
        seconds, within_s = least.tolist()
        found.append((float(num_bytes), seconds))
        spent_s += _TIMES * seconds
        if seconds > _LONG_S:
            break
    return found


def clock_ahead_s(backend: _C.AikidoBackend) -> float | None:
    """Seconds by which the clock of rank 0 is ahead of time.monotonic; None if
    unknown.
    """
    line = backend.clock_of_rank_0()
    if line is None:
        return None
    at_ns, offset_ns, drift, _ = line
    return (offset_ns + drift * (time.monotonic_ns() - at_ns)) / 1e9


def _seconds(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    begin = time.monotonic()
    dist.all_reduce(tensor, group=group)
    return time.monotonic() - begin
