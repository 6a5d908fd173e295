# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A backup rank delivers the gradient of a late rank, so that no data are lost.

Ranks 0 and 1 are primaries, and rank 2 is the backup. Rank 1 is late in each step.

Run: torchrun --nproc-per-node 3 examples/active_backup.py

Expected output (rank 0):

    rank 2 stood in for rank 1: True
    all ranks have the same parameters: True
"""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import aikido_torch
from aikido_torch.data import BackupSampler, SeededDataset
from aikido_torch.straggler import ActiveBackup


def main() -> None:
    dist.init_process_group("aikido")
    rank = dist.get_rank()
    torch.manual_seed(0)
    inputs = torch.randn(640, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def train_on(batch: list[torch.Tensor]) -> None:
        time.sleep(0.1 if rank == 1 else 0.01)
        optimizer.zero_grad()
        (model(batch[0]) - batch[1]).square().mean().backward()
        optimizer.step()

    # begin: loop
    policy = ActiveBackup(backups=1)  # of 3 ranks: 2 primaries, 1 backup
    dataset = SeededDataset(data)  # augmentation depends on epoch and index only
    sampler = BackupSampler(dataset, 16, policy)
    loader = DataLoader(dataset, batch_sampler=sampler)
    handle = aikido_torch.ddp.register(
        model, policy=policy, optimizer=optimizer, sampler=sampler
    )
    to_skip = 0
    for epoch in range(sampler.epoch, 2):
        sampler.set_epoch(epoch)
        for batch in loader:
            if to_skip:  # the other ranks did that step meanwhile
                to_skip -= 1
                continue
            train_on(batch)
            to_skip = handle.catch_up().batches_to_skip
    # end: loop
    handle.close()
    weights = [torch.empty_like(model.module.weight) for _ in range(3)]
    dist.all_gather(weights, model.module.weight.detach())
    if rank == 0:
        pairs = {pair for outcome in handle.outcomes for pair in outcome.stand_ins}
        print("rank 2 stood in for rank 1:", (1, 2) in pairs)
        is_equal = all(torch.equal(weights[0], other) for other in weights)
        print("all ranks have the same parameters:", is_equal)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
