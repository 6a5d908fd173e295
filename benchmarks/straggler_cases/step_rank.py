# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that trains with DistributedDataParallel, block by block; see runs.py.

A late rank catches up by `aikido_torch.ddp`'s handle. Without data it trains one vector
on random numbers; with it, a model of models.py.
"""

import gc
import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from benchmarks.demo_plan import ShardedBatches
from benchmarks.demo_train import Snapshots
from benchmarks.lab import rank as lab_rank
from benchmarks.launch import emit, leave
from benchmarks.models import Flat, fingerprint, make_model
from benchmarks.straggler_cases.meeting import Meeting
from benchmarks.straggler_cases.op_rank import (
    TELL_S,
    WITHIN_S,
    Groups,
    Notes,
    policy_of,
    text_of,
)
from benchmarks.straggler_cases.plan import BATCH, PLAN_FILE, Block, from_json
from benchmarks.tasks import Task

TEST_ITEMS = 512  # at most: all copies are tested
SNAPSHOT_STEPS = 1  # a few percent of the steps to an accuracy would be too coarse


class FlatTask:
    learning_rate = 0.05

    def __init__(self, block: Block):
        self.model: nn.Module = Flat(block.num_bytes)
        self._draw = torch.Generator().manual_seed(dist.get_rank())

    def loss(self, model: nn.Module) -> torch.Tensor:
        return model(torch.rand((), generator=self._draw))

    def skip(self, steps: int) -> None:
        pass

    def look(self, step: int, seconds: float) -> None:
        pass

    def curve(self) -> list[dict]:
        return []


class LearningTask:
    """A small model of the demo, and its data."""

    def __init__(
        self,
        task: Task,
        learning_rate: float,
        data: dict[str, torch.Tensor],
        *,
        seed: int,
    ):
        torch.manual_seed(seed)
        self.learning_rate = learning_rate
        self.model = make_model(task)
        self._data = data
        self._batches = ShardedBatches(
            len(data["train_y"]),
            rank=dist.get_rank(),
            num_ranks=dist.get_world_size(),
            batch_size=BATCH,
            seed=seed,
        )
        self.skip = self._batches.skip
        self._snapshots = Snapshots(self.model, SNAPSHOT_STEPS)

    def loss(self, model: nn.Module) -> torch.Tensor:
        index = torch.from_numpy(next(self._batches))
        output = model(self._data["train_x"][index])
        return nn.functional.cross_entropy(output, self._data["train_y"][index])

    def look(self, step: int, seconds: float) -> None:
        if dist.get_rank() == 0:
            self._snapshots.take_if_due(step, seconds)

    def curve(self) -> list[dict]:
        stride = -(-len(self._data["test_y"]) // TEST_ITEMS)
        return self._snapshots.evaluate(
            *(self._data[name][::stride] for name in ("test_x", "test_y"))
        )


class Trainer:
    """One block on one rank."""

    def __init__(
        self,
        block: Block,
        notices: set[int],
        task: FlatTask | LearningTask,
        group: dist.ProcessGroup,
        meeting: Meeting,
    ):
        self._block, self._task, self._meeting = block, task, meeting
        self._model = nn.parallel.DistributedDataParallel(
            task.model, process_group=group
        )
        self._optimizer = torch.optim.SGD(
            task.model.parameters(), lr=task.learning_rate, momentum=0.9
        )
        policy = policy_of(block.arm)
        self.handle = policy and aikido_torch.ddp.register(
            self._model,
            optimizer=self._optimizer,
            policy=policy,
            after_step=self._record,
        )
        is_teller = dist.get_rank() == block.counted()[0]
        self._notices = sorted(notices) if is_teller else []
        self._is_teller = is_teller
        self._told = 0.0
        self.begins: list[float] = []
        self.ends: list[float] = []
        self.sums: list[int] = []

    def run(self) -> None:
        rank = dist.get_rank()
        start = time.monotonic()
        while len(self.ends) < self._block.ops:
            self._tell_of(len(self.ends))
            self._optimizer.zero_grad()
            self.begins.append(time.monotonic())
            if pause := self._block.pause_s(rank, len(self.ends)):
                time.sleep(pause)
            self._task.loss(self._model).backward()
            self._optimizer.step()
            self._record()
            if self.handle:
                self._task.skip(self.handle.catch_up())
            self._task.look(len(self.ends), time.monotonic() - start)
        self._tell_of(self._block.ops)

    def _tell_of(self, step: int) -> None:
        while self._notices and self._notices[0] <= step:
            self._meeting.tell(reached=self._notices.pop(0))
        if self._is_teller and time.monotonic() - self._told > TELL_S:
            self._told = time.monotonic()
            emit(done=step)

    def _record(self) -> None:
        """After each step, also after those that catch_up applies."""
        self.ends.append(time.monotonic())
        every = self._block.check_every
        if every and len(self.ends) % every == 0:
            self.sums.append(self.fingerprint())

    def fingerprint(self) -> int:
        return fingerprint(self._model)


def mean_contributors(outcome: aikido_torch.Outcome) -> float:
    """How many ranks an element of the sum has in it, on average."""
    elements = sum(shard.num_elements for shard in outcome.shards)
    if elements == 0:
        return float(len(outcome.contributors))
    added = sum(s.num_elements * len(s.contributors) for s in outcome.shards)
    return added / elements


def run_block(
    index: int,
    block: Block,
    notices: set[int],
    *,
    groups: Groups,
    meeting: Meeting,
    notes: Notes,
    learns: tuple[Task, float, dict[str, torch.Tensor]] | None,
) -> None:
    task = LearningTask(*learns, seed=block.seed) if learns else FlatTask(block)
    group = groups.of(block.arm, fresh=block.fresh)
    trainer = Trainer(block, notices, task, group, meeting)
    # Else a full collection stops a rank for a quarter of a second now and then. What
    # was frozen for the block before is garbage by now, with all its snapshots.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    meeting.meet("block", index)
    trainer.run()
    if not block.check_every:
        trainer.sums.append(trainer.fingerprint())
    skipped, reasons, contributors = {}, {}, []
    for step, outcome in enumerate(trainer.handle.outcomes if trainer.handle else ()):
        if outcome.skipped:
            skipped[step] = list(outcome.skipped)
        reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
        contributors.append(mean_contributors(outcome))
    meeting.meet("end", index)
    notes.add(
        index,
        begins=trainer.begins,
        ends=trainer.ends,
        skipped=skipped,
        reasons=reasons,
        contributors=contributors,
        sums=trainer.sums,
        replayed=trainer.handle.replayed_steps if trainer.handle else 0,
        error=None,
        curve=task.curve() if dist.get_rank() == 0 else [],
    )


def main() -> None:
    argument = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    learns = None
    if path := argument.get("data"):
        with np.load(path) as arrays:
            data = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        learns = Task(argument["task"]), argument["learning_rate"], data
    dist.init_process_group("gloo", timeout=timedelta(seconds=WITHIN_S))
    meeting = Meeting(argument["folder"], dist.get_rank(), within_s=WITHIN_S)
    lab_rank.ready()
    groups, notes = Groups(), Notes(argument["folder"])
    try:
        blocks = from_json(Path(argument["folder"], PLAN_FILE).read_text())
        for index, (block, notices) in enumerate(blocks):
            run_block(
                index,
                block,
                notices,
                groups=groups,
                meeting=meeting,
                notes=notes,
                learns=learns,
            )
        dist.destroy_process_group()
    except RuntimeError as error:
        emit(rank=dist.get_rank(), failed=text_of(error))
        raise


if __name__ == "__main__":
    main()
    leave()
