# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Clips gradients, scales the loss and steps a scheduler, with a late rank.

The work between `backward()` and `zero_grad()` is one function. The loop calls it, and
`catch_up()` calls it for each step that this rank missed.

Run: torchrun --nproc-per-node 3 examples/ddp_clip_scheduler_amp.py

Expected output (rank 0):

    learning rate after 40 steps: 0.0125
    all ranks have the same parameters: True
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import aikido_torch

STEPS = 40


def main() -> None:
    dist.init_process_group("aikido")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    # begin: apply
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu")

    def apply() -> None:  # everything between backward() and the next zero_grad()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()

    handle = aikido_torch.ddp.register(
        model,
        optimizer=optimizer,
        apply=apply,
        state={"scaler": scaler, "scheduler": scheduler},
    )
    # end: apply
    step = 0
    while (step := step + handle.catch_up()) < STEPS:
        inputs = torch.randn(32, 16)
        time.sleep(0.1 if rank == 2 and step % 10 > 6 else 0.005)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(inputs)
        loss = (output.float() - inputs.sum(1, keepdim=True)).square().mean()
        scaler.scale(loss).backward()
        apply()
        step += 1
    handle.close()
    weights = [torch.empty_like(model.module.weight) for _ in range(3)]
    dist.all_gather(weights, model.module.weight.detach())
    if rank == 0:
        (rate,) = scheduler.get_last_lr()
        print(f"learning rate after {STEPS} steps: {rate:g}")
        is_equal = all(torch.equal(weights[0], other) for other in weights)
        print("all ranks have the same parameters:", is_equal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
