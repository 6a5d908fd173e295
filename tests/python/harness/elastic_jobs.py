# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Elastic jobs of real processes, and their replay in one process.

Rank i of a test is a member with the plan `plans[i]`. The store of the job is in the
process of the test.
"""

import os
import signal
import threading
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from aikido_torch import elastic
from aikido_torch.testing import run_ranks

STEPS = 60
NUM_ITEMS, BATCH_SIZE = 600, 3


@dataclass(frozen=True)
class Plan:
    """Life of one member: its role, and the steps at which something happens to it."""

    role: str = "transient"
    joins_at: int | None = None  # starts after another member has begun this step
    dies_at: int | None = None  # kills itself before the backward pass of this step
    dies_late: bool = False  # instead, it dies after its part of the optimizer step
    host: str = ""  # name of its machine; "": a machine of its own
    notice_at: int | None = None  # has an eviction notice in this step


def model_and_optimizer(thresholds=None):
    """The model, with a sharded optimizer if there are thresholds of its stages."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 1)
    ).double()
    if thresholds is None:
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)
    sharded = elastic.ShardedOptimizer(
        torch.optim.AdamW, model, lr=0.01, num_shards=4, thresholds=thresholds
    )
    return model, sharded


def dataset():
    generator = torch.Generator().manual_seed(2)
    data = torch.randn(NUM_ITEMS, 6, dtype=torch.double, generator=generator)
    return TensorDataset(data, data.sin().sum(1, keepdim=True))


def loss_of(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def parameters_of(model):
    return [p.detach().tolist() for p in model.parameters()]


def run_member(rank, size, address, plans, until, thresholds):
    """Program of a rank: committed items by step, events and parameters of it."""
    plan, late = plans[rank], [p for p in plans if p.joins_at is not None]
    host, port = address.split(":")
    marks = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    if plan.joins_at is not None:
        marks.wait([f"begun/{plan.joins_at}"])
    model, optimizer = model_and_optimizer(thresholds)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.9)
    loader = DataLoader(dataset(), batch_size=BATCH_SIZE, shuffle=True)
    if plan.joins_at is not None:
        marks.set(f"asks/{rank}", "")
    time_for_admission = threading.Event()  # never set
    job = elastic.join(
        model,
        optimizer,
        loader,
        endpoint=address,
        role=plan.role,
        host=plan.host or f"host {rank}",
        state={"scheduler": scheduler},
        min_members=size - len(late),
        timeout=20.0,
    )
    done = {}
    for step in job.steps(until=until):
        marks.set(f"begun/{step.number}", "")
        if step.number == plan.notice_at:
            job.evict()
        if rank == 0 and any(step.number > p.joins_at for p in late):
            marks.wait([f"asks/{size - 1}"])
            time_for_admission.wait(0.01)
        for batch in step:
            if step.number == plan.dies_at and not plan.dies_late:
                os.kill(os.getpid(), signal.SIGKILL)
            loss_of(job.model, batch).backward()
        if step.number == plan.dies_at:
            job._try_commit = lambda step: os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        done[step.number] = {k: list(v) for k, v in step.assignment.items.items()}
    return done, job.events, parameters_of(model), scheduler.state_dict()["last_epoch"]


def run_job(plans, until=STEPS, thresholds=None, **options):
    """Results of all ranks; None for those that die."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return run_ranks(
        len(plans),
        run_member,
        f"127.0.0.1:{store.port}",
        plans,
        until,
        thresholds,
        backend=None,
        may_die=[i for i, plan in enumerate(plans) if plan.dies_at is not None],
        **options,
    )


def replay(steps):
    """Parameters after these committed items, by step and member, in one process."""
    model, optimizer = model_and_optimizer()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.9)
    data = dataset()
    for number in sorted(steps):
        items = steps[number]
        total = sum(map(len, items.values()))
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for own in items.values():  # in rank order, as the collective adds
            if not own:
                continue
            model.zero_grad()
            loss_of(model, data[own]).backward()
            for value, p in zip(sums, model.parameters(), strict=True):
                value += p.grad * (len(own) / total)
        for value, p in zip(sums, model.parameters(), strict=True):
            p.grad = value
        optimizer.step()
        scheduler.step()
    return parameters_of(model)


def items_of_epochs(steps):
    """Committed items in the order of steps and members, cut into epochs."""
    flat = [i for n in sorted(steps) for own in steps[n].values() for i in own]
    return [flat[i : i + NUM_ITEMS] for i in range(0, len(flat), NUM_ITEMS)]
