# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trains with DistributedDataParallel and goes on without a late rank.

Run: torchrun --nproc-per-node 3 examples/ddp_skip.py

Expected output (rank 0):

    ...steps/s with ...% of all contributions: progress ...
    ...
    rank 2 was skipped: True
    all ranks have the same parameters: True
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import aikido_torch
from aikido_torch.straggler import SkipStraggler

STEPS = 60


def main() -> None:
    dist.init_process_group("aikido")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    handle = aikido_torch.ddp.register(
        model, policy=SkipStraggler(), optimizer=optimizer
    )
    step = 0
    while (step := step + handle.catch_up()) < STEPS:  # steps that this rank missed
        inputs = torch.randn(32, 16)
        if rank == 2 and step % 10 > 6:
            time.sleep(0.1)  # this rank is late now and then
        else:
            time.sleep(0.005)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        step += 1
    handle.close()
    if rank == 0:
        aikido_torch.straggler.report(handle.outcomes, steps=handle.by_step)
        skipped = {late for outcome in handle.outcomes for late in outcome.skipped}
        print("rank 2 was skipped:", 2 in skipped)
    weights = [torch.empty_like(model.module.weight) for _ in range(3)]
    dist.all_gather(weights, model.module.weight.detach())
    if rank == 0:
        is_equal = all(torch.equal(weights[0], other) for other in weights)
        print("all ranks have the same parameters:", is_equal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
