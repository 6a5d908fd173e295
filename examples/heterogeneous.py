# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trains on ranks of different speed: work moves from the slow rank to the fast ones.

Run: torchrun --nproc-per-node 3 examples/heterogeneous.py

Expected output (rank 0):

    ...Micro-batches that moved...
    ...The moves saved about ... s of ... s...
    ...Micro-batches of each rank...
    ...
    rank 2 gave work to other ranks: True
    all ranks have the same parameters: True
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import aikido_torch
from aikido_torch.reassign import StepLoader

SLOW = 2  # this rank needs three times as long as the others
BATCH, MICRO_BATCH = 96, 4  # samples of a step over all ranks, and of a micro-batch


def main() -> None:
    dist.init_process_group("aikido")
    rank = dist.get_rank()
    torch.manual_seed(0)
    inputs = torch.randn(10 * BATCH, 16)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps = StepLoader(dataset, batch_size=BATCH, micro_batch_size=MICRO_BATCH)
    handle = aikido_torch.ddp.register(model, optimizer=optimizer, steps=steps)
    for _ in range(2):  # epochs
        for step in steps:
            for micro_batch in step:  # own micro-batches, then those taken over
                time.sleep(0.015 if rank == SLOW else 0.005)
                x, y = micro_batch.data
                loss = (model(x) - y).square().mean()
                (loss * micro_batch.weight).backward()
            optimizer.step()
            optimizer.zero_grad()
    handle.close()
    moved = steps.report()  # by rank of the helper and of the owner
    weights = [torch.empty_like(model.module.weight) for _ in range(3)]
    dist.all_gather(weights, model.module.weight.detach())
    if rank == 0:
        has_given = any(owner == SLOW for _, owner in moved)
        print(f"rank {SLOW} gave work to other ranks:", has_given)
        is_equal = all(torch.equal(weights[0], other) for other in weights)
        print("all ranks have the same parameters:", is_equal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
