# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One of two ranks: continuous bulk messages from rank 0 to rank 1, and urgent ones.

Rank 1 measures the time of each message by the machine's clock, which both ranks share.
"""

import collections
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from aikido_torch._backend import backend_of
from benchmarks.launch import emit, leave

WITHIN_S = 60.0  # Time-out of a call; after that something hangs
BULK_TAG, URGENT_TAG, LAST_TAG = 1, 2, 3
AHEAD = 4  # bulk messages in progress
LEARN_S = 1.0  # urgent messages begin later than this


def send_of(backend: str, group: dist.ProcessGroup) -> Callable[..., Any]:
    def by_aikido(tensor: torch.Tensor, tag: int, priority: int) -> Any:
        return aikido_torch.send(
            tensor, 1, tag=tag, group=group, priority=priority, async_op=True
        )

    def by_gloo(tensor: torch.Tensor, tag: int, priority: int) -> Any:
        return dist.isend(tensor, 1, group=group, tag=tag)

    return by_gloo if backend == "gloo" else by_aikido


def for_each(count: int, start: Callable[[], Any], then: Callable[[], None]) -> None:
    """Keeps AHEAD operations in progress, until `count` are done."""
    works: collections.deque[Any] = collections.deque()
    for _ in range(count):
        if len(works) == AHEAD:
            works.popleft().wait()
            then()
        works.append(start())
    while works:
        works.popleft().wait()
        then()


def bulk_rate(ends: list[float], num_bytes: int) -> float:
    """Bytes per second, after the first quarter."""
    first = len(ends) // 4
    return num_bytes * (len(ends) - 1 - first) / (ends[-1] - ends[first])


def send_all(plan: dict[str, Any], group: dist.ProcessGroup) -> list[float]:
    send = send_of(plan["backend"], group)
    bulk = torch.zeros(plan["bulk_bytes"], dtype=torch.uint8)
    urgent = torch.full((plan["urgent_bytes"],), 7, dtype=torch.uint8)
    begins: list[float] = []
    draw = random.Random(plan["seed"])

    def send_urgent() -> None:
        time.sleep(LEARN_S)
        for _ in range(plan["num_urgent"]):
            time.sleep(draw.uniform(0.5, 1.5) * plan["every_s"])
            begins.append(time.monotonic())
            send(urgent, URGENT_TAG, plan["priority"]).wait()

    thread = threading.Thread(target=send_urgent)
    thread.start()
    for_each(plan["num_bulk"], lambda: send(bulk, BULK_TAG, 0), lambda: None)
    thread.join()
    return begins


def receive_all(plan: dict[str, Any], group: dist.ProcessGroup) -> dict[str, Any]:
    ends: list[float] = []
    bulk_ends: list[float] = []
    buffers = [
        torch.empty(plan["bulk_bytes"], dtype=torch.uint8) for _ in range(AHEAD + 1)
    ]

    def receive_urgent() -> None:
        for _ in range(plan["num_urgent"]):
            urgent = torch.zeros(plan["urgent_bytes"], dtype=torch.uint8)
            dist.recv(urgent, 0, group=group, tag=URGENT_TAG)
            ends.append(time.monotonic())
            if not bool((urgent == 7).all()):
                raise SystemExit("Rank 1: an urgent message is not what was sent.")

    def start() -> Any:
        buffers.append(buffers.pop(0))
        return dist.irecv(buffers[-1], 0, group=group, tag=BULK_TAG)

    thread = threading.Thread(target=receive_urgent)
    thread.start()
    for_each(plan["num_bulk"], start, lambda: bulk_ends.append(time.monotonic()))
    thread.join()
    return {
        "ends": ends,
        "bulk_end": bulk_ends[-1],
        "bulk_rate": bulk_rate(bulk_ends, plan["bulk_bytes"]),
    }


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    within = timedelta(seconds=WITHIN_S)
    options = None
    if plan["backend"] == "aikido" and plan["is_told"]:
        options = aikido_torch.Options(transport_priority=0)
    dist.init_process_group(plan["backend"], timeout=within, pg_options=options)
    group = dist.group.WORLD
    assert group is not None
    dist.barrier()
    if dist.get_rank() == 0:
        begins = send_all(plan, group)
        sent = {} if plan["backend"] == "gloo" else dict(backend_of(None).counters)
        emit(begins=begins, counters=sent)
    else:
        emit(**receive_all(plan, group))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
