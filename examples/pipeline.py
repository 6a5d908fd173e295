# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trains a model in three stages, one rank for each, and compares with one process.

Run: torchrun --nproc-per-node 3 examples/pipeline.py

Expected output (rank 2, the last stage):

    20 losses, the last one is smaller than the first: True
    same losses as in one process: True
"""

import torch
import torch.distributed as dist
from torch import nn

from aikido_torch import pipeline

STEPS, ROWS = 20, 32
Batch = tuple[torch.Tensor, torch.Tensor]


def make_stages() -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(16, 32), nn.Tanh()),
        nn.Sequential(nn.Linear(32, 32), nn.Tanh()),
        nn.Linear(32, 1),
    ]


def make_batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(ROWS, 16, generator=generator) for _ in range(STEPS)]
    return [(x, x.sum(1, keepdim=True)) for x in inputs]


def losses_in_one_process() -> list[float]:
    model = nn.Sequential(*make_stages())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for inputs, targets in make_batches():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    dist.init_process_group("aikido")
    stages, batches = make_stages(), make_batches()
    # begin: pipeline
    schedule = pipeline.schedule("1f1b", stages=3, micro_batches=4)
    pipe = pipeline.Pipeline(
        stages,
        schedule=schedule,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05),
        loss_fn=nn.functional.mse_loss,
    )
    losses = pipe.train(batches, steps=len(batches))  # on the rank of the last stage
    # end: pipeline
    if dist.get_rank() == 2:
        is_smaller = losses[-1] < losses[0]
        print(f"{len(losses)} losses, the last one is smaller than the first:", end=" ")
        print(is_smaller)
        reference = torch.tensor(losses_in_one_process())
        is_same = torch.allclose(torch.tensor(losses), reference, rtol=1e-4)
        print("same losses as in one process:", is_same)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
