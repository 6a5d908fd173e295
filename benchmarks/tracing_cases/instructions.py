# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Instructions that tracing takes, in an allreduce and relative to a training step.

Times of steps vary by more than the cost of tracing, but instructions do not. They are
counted without torch (benchmarks/instructions.py), in allreduces of 4 KiB and of the
size of the demo's model. That model is trained as well, for the processor time of a
rank's step, which is shorter than the step. For the comparison with it, each
instruction counts as SECONDS, in which this code executes several.
"""

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import trace
from aikido_torch.testing import run_ranks
from aikido_torch.trace.record import _record, _spans
from benchmarks import instructions, programs
from benchmarks.common import Result
from benchmarks.models import make_digits_model
from benchmarks.tracing_cases.overhead import ARMED_BAR, DISARMED_BAR

MODES = ("without", "disarmed", "armed")
SMALL = 1024  # elements of 4 bytes
RANKS = instructions.ALLREDUCE.ranks
# Instructions assumed for reading a clock, which takes none there: more than elsewhere.
READING = 100
SECONDS = 1e-9  # seconds per instruction
WARM_UP, TRACED = 20, 10  # numbers of steps


@dataclass(frozen=True)
class Allreduce:
    """Instructions of a rank for one allreduce, by mode.

    Attributes:
        counted: instructions without those for reading clocks.
        readings: number of clock readings while armed.
    """

    counted: Mapping[str, float]
    readings: float

    def extra(self, mode: str) -> float:
        """Instructions beyond those without a recorder."""
        clocks = self.readings * READING if mode == "armed" else 0.0
        return self.counted[mode] - self.counted["without"] + clocks


@dataclass(frozen=True)
class Step:
    """A training step of a rank: processor time, calls, and elements of one call."""

    cpu_s: float
    calls: float
    elements: int


def one_rank(rank: int, size: int, steps: int) -> Step:
    """Trains the demo's model on noise; further traced steps show its calls."""
    torch.manual_seed(0)
    model = DistributedDataParallel(make_digits_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))

    def run(steps: int) -> float:
        begin = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        return (time.process_time() - begin) / steps

    run(WARM_UP)
    cpu_s = run(steps)
    trace.start()
    run(TRACED)
    trace.stop()
    calls = [s for s in _record.take().spans if s.kind == _spans.Kind.OPERATION]
    elements = sum(call.bytes for call in calls) // 4 // len(calls)
    return Step(cpu_s, len(calls) / TRACED, elements)


def readings_of(program: Path, elements: int) -> float:
    """Number of clock readings of an armed rank in an allreduce."""
    num = instructions.NUM
    command = [str(program), str(num), "spans", str(elements)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"(\d+) readings", done.stdout)
    if done.returncode != 0 or found is None:
        raise instructions.NotCountedError(f"{program.name} failed:\n{done.stderr}")
    return int(found[1]) / num / RANKS


def allreduce_of(program: Path, elements: int) -> tuple[str, Allreduce]:
    """Compiler of the program, and costs of an allreduce of `elements` elements."""
    counted = {}
    for mode in MODES:
        build, counted[mode], _ = instructions.count(program, mode, str(elements))
    return build, Allreduce(counted, readings_of(program, elements))


def judge(build: str, small: Allreduce, of_step: Allreduce, step: Step) -> list[Result]:
    """Results for the small allreduce and for the step, disarmed and armed.

    Args:
        build: compiler of the program.
        small: an allreduce of 4 KiB.
        of_step: an allreduce of the step's size.
        step: the training step.
    """
    kib = step.elements * 4 / 1024
    bars = {"disarmed": DISARMED_BAR, "armed": ARMED_BAR}
    results = [
        Result.judge(
            f"allreduce of 4 KiB, {mode}, {RANKS} ranks, {build}",
            unit="instructions",
            value=small.counted["without"] + small.extra(mode),
            reference=small.counted["without"],
            # The bar for steps. Armed, a single call is not judged.
            bar=DISARMED_BAR if mode == "disarmed" else None,
        )
        for mode in bars
    ]
    return results + [
        Result.judge(
            f"processor time of a step of the demo's model, {mode}, "
            f"{step.calls:g} x {kib:.0f} KiB reduced",
            unit="us",
            value=(step.cpu_s + step.calls * of_step.extra(mode) * SECONDS) * 1e6,
            reference=step.cpu_s * 1e6,
            bar=bar,
        )
        for mode, bar in bars.items()
    ]


def measure(steps: int) -> list[Result]:
    """Trains for `steps` steps, and counts.

    Raises:
        instructions.NotCountedError, programs.BuildError: counting is impossible here.
    """
    program = programs.build(instructions.ALLREDUCE.program)
    build, small = allreduce_of(program, SMALL)
    ranks = run_ranks(RANKS, one_rank, steps, deadline=300)
    step = min(ranks, key=lambda each: each.cpu_s)
    _, of_step = allreduce_of(program, step.elements)
    return judge(build, small, of_step, step)
