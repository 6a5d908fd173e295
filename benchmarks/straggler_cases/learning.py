# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The task of a rank of step_rank.py: a vector, a model of the demo, or a sized
model.
"""

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.demo_plan import ShardedBatches
from benchmarks.demo_train import Snapshots
from benchmarks.models import Flat, make_digits_net, make_model
from benchmarks.straggler_cases.plan import BATCH, Block
from benchmarks.tasks import Task

TEST_ITEMS = 512  # largest number of test items, because all copies are tested
# A larger value would be too coarse compared with the steps to an accuracy.
SNAPSHOT_STEPS = 1
EVALUATED_ITEMS = 1000  # pictures of one evaluation inside the training loop


class FlatTask:
    """A vector whose gradients are random numbers; it learns nothing."""

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
        block: Block,
    ):
        torch.manual_seed(block.seed)
        self.learning_rate = learning_rate
        self.model = make_digits_net(block.net) if block.net else make_model(task)
        self._data = data
        self._batches = ShardedBatches(
            len(data["train_y"]),
            rank=dist.get_rank(),
            num_ranks=dist.get_world_size(),
            batch_size=BATCH,
            seed=block.seed,
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


class EvaluatedTask(LearningTask):
    """A model that every rank evaluates inside its training loop, as users do.

    One evaluation covers EVALUATED_ITEMS pictures, test pictures first. The accuracy is
    that of the test pictures.
    """

    def __init__(
        self,
        task: Task,
        learning_rate: float,
        data: dict[str, torch.Tensor],
        *,
        block: Block,
    ):
        super().__init__(task, learning_rate, data, block=block)
        self._every = block.evaluate_every
        self._num_steps = block.ops
        self._evaluated_at = 0
        self._labels = data["test_y"]
        pictures = torch.cat([data["test_x"], data["train_x"]])
        self._pictures = pictures[:EVALUATED_ITEMS]
        self._curve: list[dict] = []

    def look(self, step: int, seconds: float) -> None:
        """Evaluates if `step` has reached or passed a multiple of the interval.

        `curve` evaluates the last step, after the clock has stopped.
        """
        if not self._every or step >= self._num_steps:
            return
        if step // self._every != self._evaluated_at // self._every:
            self._evaluate(step, seconds)
        self._evaluated_at = step

    def curve(self) -> list[dict]:
        self._evaluate(self._num_steps, seconds=None)
        return self._curve

    @torch.no_grad()
    def _evaluate(self, step: int, seconds: float | None) -> None:
        guesses = self.model(self._pictures)[: len(self._labels)].argmax(dim=1)
        accuracy = (guesses == self._labels).float().mean().item()
        self._curve.append({"step": step, "seconds": seconds, "accuracy": accuracy})


AnyTask = FlatTask | LearningTask


def make_task(
    block: Block, learns: tuple[Task, float, dict[str, torch.Tensor]] | None
) -> AnyTask:
    """`learns`: the task, its learning rate and data; None: the block has no data."""
    if learns is None:
        return FlatTask(block)
    kind = EvaluatedTask if block.net else LearningTask
    return kind(*learns, block=block)
