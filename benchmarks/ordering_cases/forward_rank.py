# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank of forward.py: forward passes whose parameters arrive over the link."""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from benchmarks.launch import emit, leave

WITHIN_S = 60.0  # Time-out of a call; after that something hangs
LOOK_S = 0.0005
SETTLE_S = 0.2


def forward(
    turn: dict[str, Any], parameters: list[torch.Tensor]
) -> tuple[float, float]:
    """Times of begin and end."""
    place = {number: place for place, number in enumerate(turn["order"])}
    begin = time.monotonic()
    works = {
        number: aikido_torch.all_reduce(
            parameters[number], priority=-place[number], async_op=True
        )
        for number in turn["calls"]
    }
    left = list(turn["order"])
    if turn["shape"] == "chain":
        left.sort()
    while left:
        candidates = left[:1] if turn["shape"] == "chain" else left
        ready = next((n for n in candidates if works[n].is_completed()), None)
        if ready is None:
            time.sleep(LOOK_S)
            continue
        left.remove(ready)
        if turn["shape"] != "alone":
            time.sleep(turn["compute_ms"][ready] / 1e3)
    return begin, time.monotonic()


def main() -> None:
    argument = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("aikido", timeout=timedelta(seconds=WITHIN_S))
    count = len(argument["turns"][0]["order"])
    parameters = [torch.zeros(argument["num_bytes"] // 4) for _ in range(count)]
    for number, turn in enumerate(argument["turns"]):
        dist.barrier()
        time.sleep(SETTLE_S)
        dist.barrier()
        begin, end = forward(turn, parameters)
        emit(turn=number, begin=begin, end=end)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
