# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trains while members die and join, without a restart.

The program starts its members itself: two reliable and two transient members. A
transient member kills itself in step 20. From step 40 on another member joins, with the
state of a member that trains.

Run: python examples/elastic.py

Expected output:

    step 20: 3 members
    a member has joined: 4 members
    done: 400 steps
"""

import multiprocessing
import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from aikido_torch import elastic

STEPS = 400


# begin: loop
def train(endpoint: str, role: str, dies: bool, watch: Any) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(4096, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    job = elastic.join(
        model, optimizer, loader, endpoint=endpoint, role=role, min_members=4
    )
    for step in job.steps(until=STEPS):
        for batch, target in step:
            if dies and step.number == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            torch.nn.functional.mse_loss(job.model(batch), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        # end: loop
        if job.name == "1":  # the member that has begun the job
            report(step.number, len(job.roster.members), watch)
    if job.name == "1":
        print(f"done: {STEPS} steps", flush=True)


def report(step: int, num_members: int, watch: Any) -> None:
    if step == 21:
        print(f"step 20: {num_members} members", flush=True)
    if step >= 40 and not watch["joined"].is_set():
        watch["joins"].set()
        time.sleep(0.2)  # gives the new member time for its start
    if num_members == 4 and step >= 40 and not watch["joined"].is_set():
        watch["joined"].set()
        print(f"a member has joined: {num_members} members", flush=True)


if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["aikido_torch", "torch._dynamo"])
    watch = {"joins": context.Event(), "joined": context.Event()}
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    endpoint = f"127.0.0.1:{store.port}"
    roles = ["reliable", "reliable", "transient", "transient", "transient"]
    for i, role in enumerate(roles):
        if i == 4:
            watch["joins"].wait()
        args = (endpoint, role, i == 3, watch)
        context.Process(target=train, args=args).start()
