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
from torch.utils.data import TensorDataset

sys.path.append(str(Path(__file__).resolve().parents[1]))

from aikido_torch import ddp
from aikido_torch.data import BackupSampler
from aikido_torch.reassign import StepLoader
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


class Training:
    """Model of this rank, and its progress.

    Attributes:
        handle: handle of the registered model; None for Gloo.
        taken: micro-batches that this rank has taken over.
    """

    def __init__(
        self,
        plan: Plan,
        sampler: BackupSampler | None = None,
        steps: StepLoader | None = None,
    ):
        torch.manual_seed(plan.seed)
        self._plan = plan
        self.model = make_model(Task(plan.task))
        self.ddp_model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=plan.learning_rate, momentum=0.9
        )
        self.handle: ddp.Handle | None = None
        if plan.mode != "gloo":
            self.handle = ddp.register(
                self.ddp_model,
                policy=policy_of(plan),
                optimizer=self.optimizer,
                sampler=sampler,
                steps=steps,
            )
        is_late = dist.get_rank() == plan.late_rank
        self.late = late_steps(plan) if is_late else np.zeros(plan.steps, dtype=bool)
        self.taken = 0
        self._snapshots = Snapshots(self.model, plan.snapshot_steps)
        dist.barrier()
        self._begin = time.monotonic()

    def end_step(self, step: int) -> None:
        """Copies the parameters if it is time for that. Call it on all ranks."""
        # On all ranks, so that no rank passes such a step.
        is_due = self.handle is None or self.handle.every(self._plan.snapshot_steps)
        seconds = time.monotonic() - self._begin
        is_first = dist.get_rank() == 0
        if is_first and is_due and self._snapshots.take_if_due(step, seconds):
            emit(step=step)

    def report(self, data: dict[str, torch.Tensor]) -> None:
        """Sends the result from rank 0, after the last step."""
        plan, end = self._plan, time.monotonic()
        dist.barrier()
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        mine = {
            "begin": self._begin,
            "end": end,
            "skipped": self.handle.skipped_steps if self.handle is not None else 0,
            "taken": self.taken,
            "hash": digest.hexdigest(),
        }
        reports: list = [None] * plan.size
        dist.all_gather_object(reports, mine)
        if dist.get_rank() != 0:
            return
        steps = self.handle.by_step if self.handle is not None else Steps()
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
                "taken": [r["taken"] for r in reports],
                "stood_in_for": [
                    sum(rank in s.stand_ins for s in steps) for rank in range(plan.size)
                ],
                "hashes_equal": len({r["hash"] for r in reports}) == 1,
                "curve": self._snapshots.evaluate(data["test_x"], data["test_y"]),
            }
        )


def train(plan: Plan, data: dict[str, torch.Tensor]) -> Training:
    """Trains with one batch in each step."""
    policy = policy_of(plan)
    sampler = BackupSampler(data["train_y"], plan.batch_size, policy, seed=plan.seed)
    training = Training(plan, sampler)
    handle, batches = training.handle, batches_of(sampler)
    step = 0
    while step < plan.steps:
        index = torch.tensor(next(batches))
        training.optimizer.zero_grad()
        output = training.ddp_model(data["train_x"][index])
        loss = nn.functional.cross_entropy(output, data["train_y"][index])
        if training.late[step]:
            time.sleep(plan.delay_ms / 1e3)
        loss.backward()
        training.optimizer.step()
        step += 1
        if handle is not None:
            # Applies the steps that the other ranks did meanwhile, without their data.
            missed = handle.catch_up()
            for _ in range(missed.batches_to_skip):
                next(batches)
            step += missed
        training.end_step(step)
    return training


def train_by_micro_batches(plan: Plan, data: dict[str, torch.Tensor]) -> Training:
    """Trains with micro-batches that move from a late rank to the others."""
    steps = StepLoader(
        TensorDataset(data["train_x"], data["train_y"]),
        batch_size=plan.batch_size * plan.num_ranks,
        micro_batch_size=plan.batch_size // plan.micro_batches,
        seed=plan.seed,
    )
    training = Training(plan, steps=steps)
    for step in itertools.chain.from_iterable(itertools.repeat(steps)):
        for micro_batch in step:
            inputs, targets = micro_batch.data
            output = training.ddp_model(inputs)
            loss = nn.functional.cross_entropy(output, targets)
            if training.late[step.number]:
                time.sleep(plan.delay_ms / plan.micro_batches / 1e3)
            training.taken += micro_batch.is_taken
            (loss * micro_batch.weight).backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
        training.end_step(step.number + 1)
        if step.number + 1 == plan.steps:
            return training
    raise AssertionError("the loader gives steps without an end")


def main() -> None:
    plan = Plan.from_json(sys.argv[1])
    torch.set_num_threads(1)
    with np.load(plan.data) as arrays:
        data = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    dist.init_process_group(BACKENDS[plan.mode])
    try:
        run = train_by_micro_batches if plan.mode == "reassign" else train
        run(plan, data).report(data)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
