# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that trains with DistributedDataParallel, block by block; see runs.py.

A late rank catches up by the handle of `aikido_torch.ddp`. Without data it trains one
vector on random numbers; with data it trains a model of models.py.
"""

import gc
import itertools
import json
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from aikido_torch.ddp import Handle
from benchmarks.lab import rank as lab_rank
from benchmarks.launch import emit, leave
from benchmarks.models import fingerprint
from benchmarks.straggler_cases.learning import AnyTask, make_task
from benchmarks.straggler_cases.meeting import Meeting
from benchmarks.straggler_cases.op_rank import (
    TELL_S,
    WITHIN_S,
    Groups,
    Notes,
    policy_of,
    text_of,
)
from benchmarks.straggler_cases.plan import PLAN_FILE, Block, from_json
from benchmarks.tasks import Task


class Trainer:
    """One block on one rank."""

    def __init__(
        self,
        block: Block,
        notices: set[int],
        task: AnyTask,
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
        policy = policy_of(block)
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
        # Steps before which this rank slept, and the times when it woke up.
        self.paused: list[tuple[int, float]] = []

    def run(self) -> None:
        rank = dist.get_rank()
        start = time.monotonic()
        while len(self.ends) < self._block.ops:
            self._tell_of(len(self.ends))
            self._optimizer.zero_grad()
            self.begins.append(time.monotonic())
            if pause := self._block.pause_s(rank, len(self.ends)):
                time.sleep(pause)
                self.paused.append((len(self.ends), time.monotonic()))
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
        """Called after each step, also after steps that catch_up applies."""
        self.ends.append(time.monotonic())
        every = self._block.check_every
        if every and len(self.ends) % every == 0:
            self.sums.append(self.fingerprint())

    def fingerprint(self) -> int:
        return fingerprint(self._model)


def mean_contributors(outcome: aikido_torch.Outcome) -> float:
    """Mean number of ranks that an element of the sum contains."""
    elements = sum(shard.num_elements for shard in outcome.shards)
    if elements == 0:
        return float(len(outcome.contributors))
    added = sum(s.num_elements * len(s.contributors) for s in outcome.shards)
    return added / elements


def contributed(outcomes: Sequence[aikido_torch.Outcome], size: int) -> list[float]:
    """For each rank, the share of all elements whose sums include its contribution.

    A call without shards counts as one element.
    """
    parts = [
        part
        for outcome in outcomes
        for part in (
            [(s.num_elements, s.contributors) for s in outcome.shards]
            or [(1, outcome.contributors)]
        )
    ]
    total = sum(elements for elements, _ in parts)
    return [
        sum(elements for elements, ranks in parts if rank in ranks) / total
        for rank in range(size)
    ]


def contributed_by_step(handle: Handle, size: int) -> list[list[float] | None]:
    """`contributed` of each step; None for a step that is contained in a copied
    state.
    """
    outcomes = iter(list(handle.outcomes))
    found: list[list[float] | None] = []
    for step in handle.by_step:
        calls = list(itertools.islice(outcomes, step.num_calls))
        found.append(contributed(calls, size) if calls else None)
    return found


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
    task = make_task(block, learns)
    group = groups.of(block.arm, fresh=block.fresh)
    trainer = Trainer(block, notices, task, group, meeting)
    # Otherwise a full collection would stop a rank for a quarter of a second now and
    # then. Objects that were frozen for the block before are garbage now, with all its
    # snapshots.
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
        contributed=contributed_by_step(trainer.handle, dist.get_world_size(group))
        if trainer.handle
        else [],
        paused=trainer.paused,
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
