# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank of the demo: trains with DistributedDataParallel on aikido, or on Gloo.

Started by demo.py, with a Plan as its one argument.

Accuracy over time is measured without delaying any rank. Rank 0 copies its parameters
every few steps (a fraction of a millisecond, in all modes) and evaluates the copies
after the clock has stopped.
"""

import hashlib
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))

import aikido_torch
from aikido_torch.data import BackupSampler
from aikido_torch.straggler import ActiveBackup, Policy, SkipStraggler, WaitAll
from aikido_torch.straggler._steps import Steps
from benchmarks.demo_plan import BACKENDS, Plan, late_steps
from benchmarks.launch import emit, leave
from benchmarks.models import make_model
from benchmarks.tasks import Task


def policy_of(plan: Plan) -> Policy:
    """Policy of the mode; for Gloo, which waits for all ranks, WaitAll()."""
    if plan.mode == "backup":
        return ActiveBackup(backups=plan.num_backups)
    return SkipStraggler() if plan.mode == "skip" else WaitAll()


def batches_of(sampler: BackupSampler) -> Iterator[list[int]]:
    """Batches of one epoch after another."""
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from sampler


class Snapshots:
    """Copies of the parameters with the time and step of each."""

    def __init__(self, model: nn.Module, every_steps: int):
        self._model = model
        self._every_steps = every_steps
        self._last = 0
        self._taken: list[tuple[int, float, list[torch.Tensor]]] = []

    def take_if_due(self, step: int, seconds: float) -> bool:
        if step // self._every_steps == self._last // self._every_steps:
            return False
        self._last = step
        copies = [p.detach().clone() for p in self._model.parameters()]
        self._taken.append((step, seconds, copies))
        return True

    @torch.no_grad()
    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> list[dict]:
        """Accuracy on the test images, per copy. Leaves the last copy in the model."""
        curve = []
        for step, seconds, copies in self._taken:
            for parameter, copy in zip(self._model.parameters(), copies, strict=True):
                parameter.copy_(copy)
            hits = (self._model(images).argmax(dim=1) == labels).float().mean()
            curve.append({"step": step, "seconds": seconds, "accuracy": hits.item()})
        return curve


def train(plan: Plan, data: dict[str, torch.Tensor]) -> None:
    rank = dist.get_rank()
    torch.manual_seed(plan.seed)
    model = make_model(Task(plan.task))
    ddp_model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.learning_rate, momentum=0.9)
    policy = policy_of(plan)
    sampler = BackupSampler(data["train_y"], plan.batch_size, policy, seed=plan.seed)
    handle = None
    if plan.mode != "gloo":
        handle = aikido_torch.ddp.register(
            ddp_model, policy=policy, optimizer=optimizer, sampler=sampler
        )
    batches = batches_of(sampler)
    is_late = late_steps(plan) if rank == plan.late_rank else np.zeros(plan.steps)
    snapshots = Snapshots(model, plan.snapshot_steps)

    dist.barrier()
    begin = time.monotonic()
    step = 0
    while step < plan.steps:
        index = torch.tensor(next(batches))
        optimizer.zero_grad()
        output = ddp_model(data["train_x"][index])
        loss = nn.functional.cross_entropy(output, data["train_y"][index])
        if is_late[step]:
            time.sleep(plan.delay_ms / 1e3)
        loss.backward()
        optimizer.step()
        step += 1
        if handle is not None:
            # Applies the steps that the other ranks did meanwhile, without their data.
            missed = handle.catch_up()
            for _ in range(missed.batches_to_skip):
                next(batches)
            step += missed
            # On all ranks, so that no rank passes such a step.
            is_due = handle.every(plan.snapshot_steps)
        else:
            is_due = True
        seconds = time.monotonic() - begin
        if rank == 0 and is_due and snapshots.take_if_due(step, seconds):
            emit(step=step)
    end = time.monotonic()

    dist.barrier()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    mine = {
        "begin": begin,
        "end": end,
        "skipped": handle.skipped_steps if handle is not None else 0,
        "hash": digest.hexdigest(),
    }
    reports: list = [None] * plan.size
    dist.all_gather_object(reports, mine)
    if rank == 0:
        steps = handle.by_step if handle is not None else Steps()
        progress = steps.progress()
        shares = progress.shares if progress else (1.0,) * plan.num_ranks
        # All ranks use the machine's clock, so their times are comparable: from the
        # first rank's first step to the last rank's last step.
        seconds = max(r["end"] for r in reports) - min(r["begin"] for r in reports)
        emit(
            result={
                "seconds": seconds,
                "steps_per_second": plan.steps / seconds,
                "shares": shares[: plan.num_ranks],
                "skipped": [r["skipped"] for r in reports],
                "stood_in_for": [
                    sum(rank in s.stand_ins for s in steps) for rank in range(plan.size)
                ],
                "hashes_equal": len({r["hash"] for r in reports}) == 1,
                "curve": snapshots.evaluate(data["test_x"], data["test_y"]),
            }
        )


def main() -> None:
    plan = Plan.from_json(sys.argv[1])
    torch.set_num_threads(1)
    with np.load(plan.data) as arrays:
        data = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    dist.init_process_group(BACKENDS[plan.mode])
    try:
        train(plan, data)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
