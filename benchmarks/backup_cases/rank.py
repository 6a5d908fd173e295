# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that does the trainings of a plan, one after the other; see runs.py."""

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from aikido_torch.data import BackupSampler
from aikido_torch.straggler import ActiveBackup, Policy, SkipStraggler, WaitAll
from benchmarks.backup_cases.plan import (
    BATCH,
    PLAN_FILE,
    WELL_STEPS,
    Training,
    from_json,
)
from benchmarks.backup_cases.split import ByClass
from benchmarks.demo_train import Snapshots
from benchmarks.lab import rank as lab_rank
from benchmarks.launch import emit, leave
from benchmarks.models import Flat, fingerprint, make_digits_model

WITHIN_S = 300.0  # Time-out of a call; after that something hangs
OWN_SHARE = 0.98  # share of a data shard's samples that are of its own classes
TELL_S = 1.0  # interval of progress reports of rank 0
DRAIN_S = 0.5  # wait for data in transfer before bytes are read


def policy_of(training: Training) -> Policy:
    if training.mode == "strict":
        return WaitAll()
    if training.mode == "skip":
        return SkipStraggler()
    return ActiveBackup(backups=training.backups, mode=training.mode)


class Digits:
    """The demo's network on data that differ between ranks."""

    def __init__(self, training: Training, data: dict[str, torch.Tensor]):
        torch.manual_seed(training.seed)
        self.model: nn.Module = make_digits_model()
        self.dataset = ByClass(
            data["train_y"].numpy(),
            training.primaries,
            own_share=OWN_SHARE,
            seed=training.seed,
        )
        self._data = data
        self._snapshots = Snapshots(self.model, 1)

    def loss(self, model: nn.Module, batch: list[int]) -> torch.Tensor:
        index = torch.tensor([self.dataset[i] for i in batch])
        output = model(self._data["train_x"][index])
        return nn.functional.cross_entropy(output, self._data["train_y"][index])

    def look(self, step: int, seconds: float) -> None:
        if dist.get_rank() == 0:
            self._snapshots.take_if_due(step, seconds)

    def curve(self) -> list[dict]:
        if dist.get_rank() != 0:
            return []
        return self._snapshots.evaluate(self._data["test_x"], self._data["test_y"])


class Vector:
    """One vector of the given size."""

    def __init__(self, training: Training):
        self.model: nn.Module = Flat(training.num_bytes)
        self.dataset = range(BATCH * training.primaries * training.steps)

    def loss(self, model: nn.Module, batch: list[int]) -> torch.Tensor:
        return model(torch.tensor(float(batch[0] % 17 - 8)))

    def look(self, step: int, seconds: float) -> None:
        pass

    def curve(self) -> list[dict]:
        return []


def sent_bytes() -> int:
    """Bytes sent by all network devices of this host except the loopback."""
    rows = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    counts = {row.split(":")[0].strip(): row.split(":")[1].split() for row in rows}
    return sum(int(count[8]) for name, count in counts.items() if name != "lo")


class Trainer:
    """One training on one rank."""

    def __init__(
        self,
        training: Training,
        task: Digits | Vector,
        group: dist.ProcessGroup,
        meeting: dist.ProcessGroup,
    ):
        policy = policy_of(training)
        self._training, self._task = training, task
        self._group, self._meeting = group, meeting
        self._sampler = BackupSampler(
            task.dataset, BATCH, policy, num_ranks=training.size, shuffle=False
        )
        self._model = nn.parallel.DistributedDataParallel(
            task.model, process_group=group
        )
        self._optimizer = torch.optim.SGD(
            task.model.parameters(), lr=0.05, momentum=0.9
        )
        self._is_late = training.late_steps(dist.get_rank())
        self.handle = aikido_torch.ddp.register(
            self._model,
            optimizer=self._optimizer,
            policy=policy,
            sampler=self._sampler,
            after_step=self._note,
            state={},
        )
        self.ends: list[float] = []
        # Before the first step, after WELL_STEPS, and at the end.
        self.sent: list[int] = []
        self._start = 0.0

    def _batches(self) -> Iterator[list[int]]:
        epoch = 0
        while True:
            if isinstance(self._task, Digits):
                self._task.dataset.set_epoch(epoch)
            self._sampler.set_epoch(epoch)
            yield from self._sampler
            epoch += 1

    def run(self) -> None:
        batches = self._batches()
        self._meet()
        self._start = told = time.monotonic()
        while self.handle.steps < self._training.steps:
            if self.handle.steps == WELL_STEPS:
                self._meet()
            begin = time.monotonic()
            batch = next(batches)
            self._optimizer.zero_grad()
            loss = self._task.loss(self._model, batch)
            self._pause(begin)
            loss.backward()
            self._optimizer.step()
            self._note()
            for _ in range(self._catch_up()):
                next(batches)
            if dist.get_rank() == 0 and time.monotonic() - told > TELL_S:
                told = time.monotonic()
                emit(done=len(self.ends))
        self._meet()

    def _pause(self, begin: float) -> None:
        until = begin + self._training.step_ms / 1e3
        step = self.handle.steps
        if self._is_late[step]:
            until += self._training.late_ms / 1e3
        elif any(self._is_late[:step]):
            return  # it began during the step of the others, so it is on time once
        time.sleep(max(0.0, until - time.monotonic()))

    def _catch_up(self) -> int:
        # Stops at the step where all ranks meet, because no rank is further.
        missed = self.handle.catch_up()
        # Steps that a copy has skipped.
        self.ends += [time.monotonic()] * (self.handle.steps - len(self.ends))
        return missed.batches_to_skip

    def _note(self) -> None:
        """Called after each step, also after steps that catch_up applies."""
        now = time.monotonic()
        self.ends.append(now)
        self._task.look(len(self.ends), now - self._start)

    def _meet(self) -> None:
        """Waits until all ranks are at this step and no data is in transfer; then reads
        bytes.
        """
        began = time.monotonic()
        self.handle.barrier(self._meeting)  # a slow rank may copy the state meanwhile
        if dist.get_rank() == 0:
            emit(met=len(self.sent))
        time.sleep(DRAIN_S)
        self.sent.append(sent_bytes())
        dist.barrier(self._meeting)
        # Not part of the training's time.
        self._start += time.monotonic() - began

    def fingerprint(self) -> int:
        return fingerprint(self._model)


def facts_of(trainer: Trainer) -> dict:
    steps = trainer.handle.by_step
    return {
        "ends": trainer.ends,
        "sent": trainer.sent,
        "own_steps": sum(step.way == "own" for step in steps),
        "skipped": [sorted(step.skipped) for step in steps],
        "stand_ins": [
            {shard: sorted(by) for shard, by in step.stand_ins.items()}
            for step in steps
        ],
        "fingerprint": trainer.fingerprint(),
    }


def run(
    index: int, training: Training, data: dict[str, torch.Tensor] | None, folder: str
) -> None:
    ranks = list(range(training.size))
    timeout = timedelta(seconds=WITHIN_S)
    group = dist.new_group(ranks=ranks, backend="aikido", timeout=timeout)
    meeting = dist.new_group(ranks=ranks, backend="gloo", timeout=timeout)
    if dist.get_rank() in ranks:
        task = Digits(training, data) if data else Vector(training)
        trainer = Trainer(training, task, group, meeting)
        trainer.run()
        facts = facts_of(trainer) | {"training": index}
        del trainer
        dist.destroy_process_group(group)
        facts["curve"] = task.curve()
        with Path(folder, f"{dist.get_rank()}.jsonl").open("a") as file:
            file.write(json.dumps(facts) + "\n")
    dist.barrier()
    if dist.get_rank() == 0:
        emit(ended=index)


def main() -> None:
    argument = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    data = None
    if path := argument.get("data"):
        with np.load(path) as arrays:
            data = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    folder = argument["folder"]
    dist.init_process_group("gloo", timeout=timedelta(seconds=WITHIN_S))
    lab_rank.ready()
    try:
        for index, training in enumerate(
            from_json(Path(folder, PLAN_FILE).read_text())
        ):
            run(index, training, data, folder)
        dist.destroy_process_group()
    except RuntimeError as error:
        text = " ".join(str(error).split())
        emit(rank=dist.get_rank(), failed=f"{type(error).__name__}: {text}")
        os._exit(1)  # the other ranks of its groups could only wait


if __name__ == "__main__":
    main()
    leave()
