# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A rank that runs in its own process and traces some calls.

A test can give this process another clock.

    python -m harness.traced_rank STORE RANK SIZE DUMP
"""

import sys

import torch
import torch.distributed as dist

from aikido_torch import trace


def main(store: str, rank: int, size: int, dump: str) -> None:
    dist.init_process_group(
        "aikido", init_method=f"file://{store}", rank=rank, world_size=size
    )
    trace.start()
    for _ in range(500):
        dist.all_reduce(torch.ones(4))
    trace.stop()
    trace.save(dump)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
