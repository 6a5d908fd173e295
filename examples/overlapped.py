# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Sums gradients while the next forward pass runs, and prints the plan.

Run: torchrun --nproc-per-node 2 examples/overlapped.py

Expected output (rank 0):

    ...
    all ranks have the same parameters: True
"""

import torch
import torch.distributed as dist
from torch import nn

import aikido_torch

STEPS = 30


def main() -> None:
    dist.init_process_group("aikido")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = [torch.randn(32, 64) for _ in range(STEPS)]
    # begin: loop
    model = aikido_torch.overlap.OverlappedDataParallel(net, optimizer)
    for batch in loader:
        optimizer.zero_grad()
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()  # waits for no sum
    model.synchronize()  # all parameters have their last step
    if dist.get_rank() == 0:  # each rank has measured for itself
        model.report()  # windows, buckets, predicted and measured times
    # end: loop
    weight = net[0].weight.detach()
    weights = [torch.empty_like(weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, weight)
    if dist.get_rank() == 0:
        is_equal = all(torch.equal(weights[0], other) for other in weights)
        print("all ranks have the same parameters:", is_equal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
