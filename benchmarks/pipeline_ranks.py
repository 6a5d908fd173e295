# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Ranks of pipeline.py: pipelines of stages that take a known time.

A stage sleeps, forward and backward, so ranks do not need a core each. The time besides
the sleep is that of the pipeline.
"""

import functools
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from aikido_torch import pipeline
from aikido_torch.pipeline.plan import _schedule

WIDTH, ROWS = 64, 16
FORWARD_S, BACKWARD_S = 0.005, 0.010
SLOW_FORWARD_S, SLOW_BACKWARD_S = 0.020, 0.040


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_s: float, backward_s: float) -> Any:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep(ctx.backward_s)
        return gradients[0], None, None


class TimedStage(nn.Module):
    """A small layer that takes `forward_s` and `backward_s`."""

    def __init__(self, number: int, forward_s: float, backward_s: float) -> None:
        super().__init__()
        torch.manual_seed(number)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.times = forward_s, backward_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.layer(x))
        return _Sleep.apply(x, *self.times) if any(self.times) else x


def data(num_micro_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (num_micro_batches * ROWS, WIDTH)
    x, y = (torch.randn(shape, generator=generator) for _ in range(2))
    return x, y


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def make_pipeline(size: int, schedule: _schedule.Schedule, times: Any) -> Any:
    return pipeline.Pipeline(
        [lambda s=s: TimedStage(s, *times) for s in range(size)],
        schedule=schedule,
        optimizer=sgd,
        loss_fn=loss_of,
    )


def timed(call: Any) -> float:
    """Seconds until all ranks have finished the call."""
    dist.barrier()
    begin = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - begin


def run_async(
    rank: int,
    size: int,
    lengths: list[int],
    times: tuple[float, float],
    warmups: list[int] | None,
    repeats: int,
) -> Any:
    """Seconds of asynchronous runs, by number of micro-batches."""
    taken: dict[int, list[float]] = {}
    for length in lengths:
        schedule = pipeline.schedule(
            "1f1b_async", stages=size, micro_batches=length, warmups=warmups
        )
        x, y = data(length)
        loader = list(zip(x.split(ROWS), y.split(ROWS), strict=True))
        with make_pipeline(size, schedule, times) as pipe:
            # Sends the shapes and warms the connections up.
            pipe.train(loader, steps=length)
            run = functools.partial(pipe.train, loader, steps=length)
            taken[length] = [timed(run) for _ in range(repeats)]
    return taken


def run_flush(rank: int, size: int, count: int, steps: int, repeats: int) -> Any:
    """Seconds of `steps` 1F1B steps, and the losses of all micro-batches."""
    schedule = pipeline.schedule("1f1b", stages=size, micro_batches=count)
    x, y = data(count)
    losses: list[float] = []

    with make_pipeline(size, schedule, (FORWARD_S, BACKWARD_S)) as pipe:

        def step() -> None:
            pipe.train_step(x, y)
            losses.extend(float(pipe.losses[b]) for b in sorted(pipe.losses))

        step()
        taken = [timed(lambda: [step() for _ in range(steps)]) for _ in range(repeats)]
    return taken, losses


def run_torch(rank: int, size: int, count: int, steps: int, repeats: int) -> Any:
    """Like `run_flush`, by torch.distributed.pipelining."""
    from torch.distributed import pipelining

    module = TimedStage(rank, FORWARD_S, BACKWARD_S)
    optimizer = sgd(module.parameters())
    stage = pipelining.PipelineStage(module, rank, size, torch.device("cpu"))
    plan = pipelining.Schedule1F1B(stage, count, loss_fn=loss_of)
    x, y = data(count)
    losses: list[float] = []

    def step() -> None:
        optimizer.zero_grad()
        if rank == 0:
            plan.step(x)
        elif rank + 1 == size:
            found: list[torch.Tensor] = []
            plan.step(target=y, losses=found)
            losses.extend(loss.item() for loss in found)
        else:
            plan.step()
        optimizer.step()

    step()
    taken = [timed(lambda: [step() for _ in range(steps)]) for _ in range(repeats)]
    return taken, losses


def run_overhead(rank: int, size: int, count: int, repeats: int) -> Any:
    """Processor seconds of this thread per instruction, without its computation."""
    schedule = pipeline.schedule("1f1b_async", stages=size, micro_batches=count)
    x, y = data(count)
    loader = list(zip(x.split(ROWS), y.split(ROWS), strict=True))
    num_instructions = len(schedule.ranks[rank])
    found = []
    with make_pipeline(size, schedule, (0, 0)) as pipe:
        pipe.train(loader, steps=count)
        for _ in range(repeats):
            dist.barrier()
            begin = time.thread_time()
            pipe.train(loader, steps=count)
            spent = time.thread_time() - begin
            alone = _computing_alone(rank, size, loader)
            found.append((spent - alone) / num_instructions)
    return found


def _computing_alone(rank: int, size: int, loader: Any) -> float:
    module = TimedStage(rank, 0, 0)
    optimizer = sgd(module.parameters())
    begin = time.thread_time()
    for x, y in loader:
        if rank > 0:
            x = x.clone().requires_grad_()
        output = module(x)
        gradient = torch.ones_like(output)
        if rank + 1 == size:
            output, gradient = loss_of(output, y), None
        output.backward(gradient)
        optimizer.step()
        optimizer.zero_grad()
    return time.thread_time() - begin
