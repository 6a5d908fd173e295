# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Demo of two small models: `torchrun --nproc-per-node=3 -m
aikido_torch.pipeline.demo`.

A model learns handwritten digits on a pipeline whose first stage has two replicas, and
a character model learns Python's own reference on three stages. Both train with the
policy for weights in `--weights`. The digits need scikit-learn.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table
from torch import nn

from aikido_torch import pipeline
from aikido_torch.errors import UnsupportedError

__all__: list[str] = []

Batch = tuple[torch.Tensor, torch.Tensor]

# Micro-batches of a run, by whether the schedule flushes. With a flush a batch is cut
# into this many; otherwise each batch is one.
MICRO_BATCHES = {True: 4, False: 48}
ROWS = 16  # rows of a batch
CONTEXT = 32  # length of a text sample in characters
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))


class Weights(StrEnum):
    """Names of the policies for weights, for the command line."""

    FLUSH = "flush"
    STASH = "stash"
    VERTICAL_SYNC = "vertical_sync"
    TWO_VERSIONS = "2bw"


@dataclass(frozen=True)
class Task:
    """A model and its data.

    Attributes:
        data: returns inputs and targets for training and for the test.
        stages: makes the modules of all stages.
        replicas: number of replicas of each stage.
        learning_rate: learning rate of Adam.
    """

    data: Callable[[], tuple[Batch, Batch]]
    stages: Callable[[], list[nn.Module]]
    replicas: tuple[int, ...]
    learning_rate: float


def _digits() -> tuple[Batch, Batch]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UnsupportedError(
            "the digits are part of scikit-learn; pip install scikit-learn."
        ) from None
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(found.target)
    return _split(images, labels)


def _text() -> tuple[Batch, Batch]:
    """Samples in which the target of each character is the next character."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))[: 3000 * CONTEXT + 1]
    numbers = torch.tensor([max(0, ALPHABET.find(character)) for character in text])
    return _split(numbers[:-1].view(-1, CONTEXT), numbers[1:].view(-1, CONTEXT))


def _split(inputs: torch.Tensor, targets: torch.Tensor) -> tuple[Batch, Batch]:
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    test, train = order.tensor_split([len(order) // 4])
    return (inputs[train], targets[train]), (inputs[test], targets[test])


class _Recurrent(nn.Module):
    """A GRU that returns its state after each character."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.states = nn.GRU(width, width, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.states(x)[0]
        return states


TASKS = {
    "digits": Task(
        _digits,
        lambda: [
            nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
            ),
            nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)),
        ],
        replicas=(2, 1),
        learning_rate=1e-3,
    ),
    "text": Task(
        _text,
        lambda: [
            nn.Embedding(len(ALPHABET), 64),
            _Recurrent(64),
            nn.Linear(64, len(ALPHABET)),
        ],
        replicas=(1, 1, 1),
        learning_rate=3e-3,
    ),
}


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy; classes are the last dimension."""
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def batches_of(data: Batch, seed: int) -> Iterator[Batch]:
    """Rows in a random order, without end; the last batch of each pass is smaller."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(data[0]), generator=generator)
        for rows in torch.split(order, ROWS):
            yield data[0][rows], data[1][rows]


def train(
    task: Task, weights: Weights, steps: int, recompute: bool
) -> dict[str, float]:
    """Trains on this rank of three. The result is equal on all ranks."""
    torch.manual_seed(0)
    (inputs, targets), test = task.data()
    stages = task.stages()
    is_flush = weights is Weights.FLUSH
    schedule = pipeline.schedule(
        "1f1b" if is_flush else "1f1b_async",
        stages=len(stages),
        micro_batches=MICRO_BATCHES[is_flush],
        replicas=task.replicas,
        weights=None if is_flush else weights.value,
        recompute=recompute,
    )
    with pipeline.Pipeline(
        stages,
        schedule=schedule,
        optimizer=lambda p: torch.optim.Adam(p, lr=task.learning_rate),
        loss_fn=loss_of,
    ) as pipe:
        begin = time.perf_counter()
        losses = pipe.train(batches_of((inputs, targets), seed=1), steps=steps)
        seconds = time.perf_counter() - begin
        # The whole model, from the ranks that have its stages.
        mine = {s: module.state_dict() for s, module in pipe.modules.items()}
    parts: list[dict[int, dict[str, torch.Tensor]]] = [{}] * dist.get_world_size()
    dist.all_gather_object(parts, mine)
    for part in parts:
        for s, state in part.items():
            stages[s].load_state_dict(state)
    with torch.no_grad():
        hits = nn.Sequential(*stages)(test[0]).argmax(-1) == test[1]
    all_losses: list[list[float]] = [[]] * dist.get_world_size()
    dist.all_gather_object(all_losses, losses)
    told = next(found for found in all_losses if found)
    return {
        "first_loss": sum(told[:10]) / len(told[:10]),
        "last_loss": sum(told[-10:]) / len(told[-10:]),
        "accuracy": hits.float().mean().item(),
        "seconds": seconds,
        "rows_per_s": steps * ROWS / seconds,
    }


def main(
    weights: Annotated[
        Weights, typer.Option(help="Policy for the version of the weights.")
    ] = Weights.STASH,
    steps: Annotated[
        int, typer.Option(help="Batches of 16 rows for each model.")
    ] = 960,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute activations again.")
    ] = False,
) -> None:
    """Trains a model on digits, and one on characters."""
    logging.getLogger("torch.distributed").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dist.init_process_group("aikido")
    console = Console()
    if dist.get_world_size() != 3:
        if dist.get_rank() == 0:
            console.print("The demo takes three ranks: torchrun --nproc-per-node=3.")
        dist.destroy_process_group()
        raise typer.Exit(1)
    table = Table(title=f"{steps} batches of {ROWS} rows, weights: {weights.value}")
    columns = ("task", "replicas", "loss, first", "last", "test accuracy", "rows / s")
    for column in columns:
        table.add_column(column, justify="left" if column == "task" else "right")
    for name, task in TASKS.items():
        told = train(task, weights, steps, recompute)
        table.add_row(
            name,
            "-".join(map(str, task.replicas)),
            f"{told['first_loss']:.3f}",
            f"{told['last_loss']:.3f}",
            f"{told['accuracy']:.1%}",
            f"{told['rows_per_s']:.0f}",
        )
    if dist.get_rank() == 0:
        console.print(table)
    dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
