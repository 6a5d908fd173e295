# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that does the trainings of a plan, one after the other; see runs.py."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, TensorDataset, default_collate

sys.path.append(str(Path(__file__).resolve().parents[2]))

import aikido_torch
from aikido_torch.reassign import StepLoader
from aikido_torch.straggler import WaitAll
from benchmarks import tasks
from benchmarks.launch import emit, leave
from benchmarks.models import fingerprint, make_model
from benchmarks.reassign_cases.plan import (
    BOTH,
    DDP,
    PLAN_FILE,
    REASSIGN,
    SLACK,
    Training,
    from_json,
)

WITHIN_S = 60.0  # time-out of a call; after that something hangs
WIDTH = 32  # features of a sample, and width of the small model
HELPERS = {REASSIGN: 3, BOTH: 3}  # by arm; 0 in others
SLACK_STEPS = {SLACK: 2, BOTH: 2}

# Index of the sample, input and target, for the samples of a micro-batch.
Data = list[torch.Tensor]
# Data, factor of the loss, and True if the micro-batch is of another rank.
MicroBatch = tuple[Data, float, bool]


def dataset_of(training: Training) -> Dataset[Any]:
    """Samples of all steps, in their order."""
    count = training.all_steps * training.step_items * training.samples
    indices = torch.arange(count)
    if training.task == "text":
        text = tasks.read_text()
        windows = np.lib.stride_tricks.sliding_window_view(text, tasks.CONTEXT + 1)
        order = np.random.default_rng((training.seed, 3)).permutation(len(windows))
        chosen = torch.from_numpy(windows[np.resize(order, count)])
        return TensorDataset(indices, chosen[:, :-1], chosen[:, -1])
    generator = torch.Generator().manual_seed(training.seed)
    inputs = torch.randn(count, WIDTH, generator=generator)
    return TensorDataset(indices, inputs, inputs.sum(1, keepdim=True))


def net_of(training: Training) -> tuple[nn.Module, nn.Module, float]:
    """The model, its loss and its learning rate."""
    torch.manual_seed(training.seed)
    if training.task == "text":
        rate = tasks.RECIPES[tasks.Task.TEXT].learning_rate
        return make_model(tasks.Task.TEXT), nn.CrossEntropyLoss(), rate
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    return net, nn.MSELoss(), 0.01


class Rank:
    """One training on this rank.

    A micro-batch takes its whole time by the timer, and its real gradient is within
    that time. The real backward follows the sleep, which is shorter by the last real
    backward that summed nothing over ranks.
    """

    def __init__(self, training: Training) -> None:
        self._training, self._rank = training, dist.get_rank()
        self._work_s, self._slowness = training.work_s().ravel(), training.slowness()
        net, self._loss_of, rate = net_of(training)
        self._model = DistributedDataParallel(net)
        self._optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        self._dataset = dataset_of(training)
        self._backward_s = 0.0
        # End of the last micro-batch of the step; None before the first one.
        self._free_at: float | None = None
        self._step = 0
        self.ends: list[float] = []
        self.losses: list[float] = []  # sum over the micro-batches of each step
        # Seconds from the end of a micro-batch to the begin of the next one, by the
        # kind of the next one.
        self.gaps: dict[str, list[float]] = {"own": [], "taken": []}
        self.taken = 0

    def train(self) -> None:
        steps = self._ddp() if self._training.arm == DDP else self._loader()
        meet()
        for step, micro_batches in enumerate(steps):
            self._step, self._free_at = step, None
            self.losses.append(0.0)
            for micro_batch in micro_batches:
                self._compute(*micro_batch)
            self._optimizer.step()
            self._optimizer.zero_grad()
            self.ends.append(time.monotonic())

    def _ddp(self) -> Iterator[Iterator[MicroBatch]]:
        """Equal counts in the order of the dataset, with accumulation."""
        for step in range(self._training.all_steps):
            yield self._accumulated(step)

    def _accumulated(self, step: int) -> Iterator[MicroBatch]:
        each, samples = self._training.items, self._training.samples
        first = step * self._training.step_items + self._rank * each
        for item in range(first, first + each):
            indices = range(item * samples, (item + 1) * samples)
            data = default_collate([self._dataset[i] for i in indices])
            is_last = item == first + each - 1
            with contextlib.nullcontext() if is_last else self._model.no_sync():
                yield data, 1 / each, False

    def _loader(self) -> Iterator[Iterator[MicroBatch]]:
        training = self._training
        predicted = training.predicted().ravel().repeat(training.samples)
        steps = StepLoader(
            self._dataset,
            batch_size=training.step_items * training.samples,
            micro_batch_size=training.samples,
            cost=(predicted / training.samples).tolist(),
            shuffle=False,
            helpers=HELPERS.get(training.arm, 0),
            slack=SLACK_STEPS.get(training.arm, 0),
        )
        handle = aikido_torch.ddp.register(
            self._model, optimizer=self._optimizer, policy=WaitAll(), steps=steps
        )
        for step in steps:
            yield ((each.data, each.weight, each.is_taken) for each in step)
        if handle.flush():
            self.ends[-1] = time.monotonic()  # the last updates count
        handle.close()

    def _compute(self, data: Data, weight: float, is_taken: bool) -> None:
        begin = time.monotonic()
        if self._step >= self._training.warm_up:
            self.taken += is_taken
            if self._free_at is not None:
                what = "taken" if is_taken else "own"
                self.gaps[what].append(begin - self._free_at)
        index, inputs, targets = data
        item = int(index[0]) // self._training.samples
        seconds = self._work_s[item] * self._slowness[self._step, self._rank]
        loss = self._loss_of(self._model(inputs), targets)
        self.losses[-1] += loss.item()
        left = begin + seconds - self._backward_s - time.monotonic()
        time.sleep(max(0.0, left))
        before = time.monotonic()
        (loss * weight).backward()
        self._free_at = time.monotonic()
        if not self._model.require_backward_grad_sync:
            self._backward_s = self._free_at - before

    def seen(self) -> dict[str, Any]:
        return {
            "ends": self.ends,
            "losses": self.losses,
            "taken": self.taken,
            "gap_s": {what: sum(gaps) for what, gaps in self.gaps.items()},
            "gaps": {what: len(gaps) for what, gaps in self.gaps.items()},
            "fingerprint": fingerprint(self._model.module),
        }


def meet() -> None:
    dist.all_reduce(torch.zeros(1))


def main() -> None:
    folder = json.loads(sys.argv[1])["folder"]
    trainings = from_json(Path(folder, PLAN_FILE).read_text())
    torch.set_num_threads(1)
    dist.init_process_group("aikido", timeout=timedelta(seconds=WITHIN_S))
    for number, training in enumerate(trainings):
        rank = Rank(training)
        rank.train()
        meet()
        emit(rank=dist.get_rank(), training=number, **rank.seen())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
