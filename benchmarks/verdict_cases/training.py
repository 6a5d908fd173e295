# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""One rank that trains in traced steps, and is late as its phases say."""

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import pipeline, trace
from aikido_torch.pipeline.plan import _profile
from aikido_torch.trace.record import _dump, _record

__all__ = ["STEPS", "Disturbance", "Phase", "train"]

T = TypeVar("T")

STEPS = 18  # steps of a phase
WORK_S, LATE_S, STOP_S = 0.012, 0.04, 0.2
# A rank that waits for a core is really late, and a verdict that names it is right. So
# a phase is repeated if threads of a rank waited for more than this share of its time,
# or if in one step the threads of calls waited for this long.
QUIET_SHARE, QUIET_S, MOST_TRIES = 0.1, LATE_S / 4, 5
WIDTH = 64


@dataclass(frozen=True)
class Phase:
    """For some steps ranks are late: all of `ranks`, or each of them in turn."""

    cause: str
    ranks: tuple[int, ...]
    in_turn: bool = False

    def late_s(self, cause: str, rank: int, step: int) -> float:
        """Additional seconds of a rank, for this cause, in a step of the phase."""
        if cause != self.cause:
            return 0.0
        turn = self.ranks[step % len(self.ranks)] if self.ranks else -1
        is_late = rank == turn if self.in_turn else rank in self.ranks
        return LATE_S if is_late else 0.0


class Late(torch.autograd.Function):
    """Function that sleeps in the backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        time.sleep(ctx.seconds)
        return gradient, None


class Slow(torch.nn.Module):
    """A layer whose backward takes `seconds`."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = WORK_S
        self.linear = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Late.apply(self.linear(x), self.seconds)


class Batches:
    """Endless batches, each after a wait."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            time.sleep(0.001 + self.seconds)
            yield torch.randn(4, WIDTH)


def stop_for(seconds: float) -> None:
    """Stops this process from outside for `seconds`."""
    me = os.getpid()
    command = f"kill -STOP {me}; sleep {seconds}; kill -CONT {me}"
    with subprocess.Popen(["sh", "-c", command]) as stopper:
        stopper.wait()


@dataclass(frozen=True)
class Disturbance:
    """Time that the machine took from the rank from which it took most.

    Attributes:
        share: share of the time of a phase, all threads together.
        longest_s: longest time in one step.
    """

    share: float
    longest_s: float

    @property
    def size(self) -> float:
        """At most 1 for a phase that was not disturbed."""
        return max(self.share / QUIET_SHARE, self.longest_s / QUIET_S)


class Waits:
    """Times in which the machine keeps a rank from running.

    The kernel counts two kinds: the time in which threads could run but others did, and
    the time in which the host of a virtual machine took cores away from it.
    """

    def __init__(self) -> None:
        self._begin = self._before = self._seconds()
        self._longest_s = 0.0

    @staticmethod
    def _seconds() -> tuple[float, float, float]:
        """The clock, the waits of all threads so far, and those of the threads of
        calls.

        The latter include the time that was taken from cores.
        """
        waited_s, of_calls_s = _waited_s()
        return time.monotonic(), waited_s, of_calls_s + _stolen_s()

    def end_step(self) -> None:
        """Another step is over."""
        now = self._seconds()
        self._longest_s = max(self._longest_s, now[2] - self._before[2])
        self._before = now

    def seen(self) -> Disturbance:
        """Disturbance since construction, of the most disturbed rank; equal on all
        ranks.
        """
        now = self._seconds()
        share = (now[1] - self._begin[1]) / (now[0] - self._begin[0])
        most = torch.tensor([share, self._longest_s], dtype=torch.float64)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return Disturbance(*most.tolist())


def _waited_s() -> tuple[float, float]:
    """Waits of all threads of this process, and of its first thread and those of
    aikido.
    """
    all_ns = of_calls_ns = 0
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            waited_ns = int((task / "schedstat").read_text().split()[1])
            name = (task / "comm").read_text()
            all_ns += waited_ns
            if int(task.name) == os.getpid() or name.startswith("aikido"):
                of_calls_ns += waited_ns
    return all_ns / 1e9, of_calls_ns / 1e9


def _stolen_s() -> float:
    """Seconds that the host has taken from all cores since the machine booted."""
    with Path("/proc/stat").open() as lines:
        ticks = int(lines.readline().split()[8])
    return ticks / os.sysconf("SC_CLK_TCK")


def train(
    rank: int, size: int, wrapper: str, phases: list[Phase]
) -> list[tuple[_dump.Dump, Disturbance]]:
    """By phase: the dump, with one step more than the phase, and the disturbance."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step = _step_of(wrapper, size)
    for _ in range(3):
        step(rank, Phase("none", ()), 0)
    return [
        _undisturbed(lambda waits, phase=phase: _traced(step, rank, phase, waits))
        for phase in phases
    ]


def _undisturbed(measure: Callable[[Waits], T]) -> tuple[T, Disturbance]:
    """The first try without a disturbance, otherwise the least disturbed one.

    All ranks take the same one.
    """
    tries = []
    for _ in range(MOST_TRIES):
        waits = Waits()
        tries.append((measure(waits), waits.seen()))
        if tries[-1][1].size <= 1:
            break
    return min(tries, key=lambda each: each[1].size)


def _traced(step: Any, rank: int, phase: Phase, waits: Waits) -> _dump.Dump:
    trace.start()
    for number in range(STEPS + 1):
        time.sleep(0.001 + phase.late_s("loop", rank, number))
        if phase.late_s("host stopped", rank, number):
            stop_for(STOP_S)
        step(rank, phase, number)
        waits.end_step()
    trace.stop()
    return _record.take()


def _step_of(wrapper: str, size: int) -> Any:
    if wrapper == "pipeline":
        return _pipeline_step(size)
    slow = Slow()
    net = torch.nn.Sequential(slow, torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    if wrapper == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        model: torch.nn.Module = fully_shard(net)
    else:
        model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = Batches()
    trace.watch(model, optimizer, batches, control=False)
    stream = iter(batches)

    def step(rank: int, phase: Phase, number: int) -> None:
        batches.seconds = phase.late_s("input", rank, number)
        slow.seconds = WORK_S + phase.late_s("compute", rank, number)
        optimizer.zero_grad()
        model(next(stream)).square().mean().backward()
        optimizer.step()

    return step


def _pipe(stages: list[Slow], plan: Any = None) -> pipeline.Pipeline:
    size = len(stages)
    return pipeline.Pipeline(
        stages,
        plan=plan,
        schedule=pipeline.schedule("1f1b", stages=size, micro_batches=size),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        loss_fn=torch.nn.functional.mse_loss,
    )


def _plan_of(stages: list[Slow], rank: int, batch: torch.Tensor) -> Any:
    """The times of stages in a pipeline if ranks share cores and none is late.

    Alone a stage would be faster: if there are more ranks than cores, they delay each
    other.
    """
    pipe = _pipe(stages)

    def measure(waits: Waits) -> _dump.Dump:
        trace.start()
        for _ in range(STEPS):
            pipe.train_step(batch, batch)
            waits.end_step()
        trace.stop()
        return _record.take()

    dump, _ = _undisturbed(measure)
    steps = [facts.ranks[rank].stages for facts in trace.facts_of([dump])]
    told = torch.zeros(len(stages), dtype=torch.float64)
    told[rank] = 1e3 * statistics.median(s[rank] for s in steps if rank in s)
    dist.all_reduce(told)
    none = [0.0] * len(stages)
    profile = _profile.chain(
        forward_ms=told.tolist(), backward_ms=none, activation_bytes=none,
        parameter_bytes=none,
    )  # fmt: skip
    return pipeline.partition(
        profile, machines=len(stages), bandwidth=1e9, straight=True
    )


def _pipeline_step(size: int) -> Any:
    stages = [Slow() for _ in range(size)]
    for stage in stages:
        stage.seconds = WORK_S / size
    batch = torch.randn(4 * size, WIDTH)
    pipe = _pipe(stages, _plan_of(stages, dist.get_rank(), batch))

    def step(rank: int, phase: Phase, number: int) -> None:
        late = phase.late_s("compute", rank, number)
        stages[rank].seconds = (WORK_S + late) / size
        pipe.train_step(batch, batch)

    return step
