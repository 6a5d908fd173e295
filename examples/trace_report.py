# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Traces some steps on all ranks and says which rank made the others wait.

Run: torchrun --nproc-per-node 3 examples/trace_report.py

Expected output (rank 0):

    ...
    culprits: rank 2
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from aikido_torch import trace

STEPS, FIRST, LAST = 160, 120, 139


def main() -> None:
    dist.init_process_group("aikido")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(torch.randn(STEPS * 32, 16), batch_size=32)
    # begin: watch
    trace.watch(model, optimizer, loader)  # once on each rank, before the loop
    # end: watch
    future = None
    if rank == 0:
        future = trace.capture_steps(FIRST, LAST)  # any rank can ask for all ranks
    for batch in loader:
        optimizer.zero_grad()
        time.sleep(0.02 if rank == 2 else 0.005)  # rank 2 computes longer
        model(batch).square().mean().backward()
        optimizer.step()
    if future is not None:
        dumps = future.result()
        trace.report(dumps)
        verdict = trace.attribute(trace.facts_of(dumps))
        ranks = ", ".join(f"rank {culprit.rank}" for culprit in verdict.culprits)
        print("culprits:", ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
