# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Consecutive groups whose stores use the same port."""

import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from aikido_torch.testing import late, run_ranks

ROUNDS = 4


def begin_again(rank, size, port):
    """Seconds that each end of a group took."""
    took = []
    for k in range(ROUNDS):
        dist.init_process_group(
            "aikido",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=10),
        )
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [size] * 2
        if rank == 0 and k % 2:
            late(0.1)  # keeps its store longer than the other ranks need it
        begin = time.monotonic()
        dist.destroy_process_group()
        took.append(time.monotonic() - begin)
    return max(took)


def test_the_next_group_can_use_the_port_of_the_last_one():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    took = run_ranks(3, begin_again, port, backend=None)
    assert max(took) < 2.0  # shorter than shutdown.linger_ms of 5 s
