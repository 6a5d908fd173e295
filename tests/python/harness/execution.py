# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runs a program on one rank, and describes the differences between two runs."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from aikido_torch.testing import late
from harness import operations as ops
from harness.memory import is_close, same_bits
from harness.programs import GroupPlan, Program, Step, delays

TIMEOUT = timedelta(seconds=20)


@dataclass
class Run:
    """Results of a program on one rank, by the number of the step."""

    results: dict[int, list[Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def run(program: Program, rank: int, backend: str, turn: str, folder: str) -> Run:
    """Makes the groups of a program, runs it on one rank and destroys the groups."""
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/{program.number}-{turn}",
        rank=rank,
        world_size=program.size,
        timeout=TIMEOUT,
    )
    runner = _Runner(program, rank, backend, turn)
    try:
        for step in program.steps:
            with _blamed(program, step.number, turn):
                runner.step(step)
        with _blamed(program, "the end", turn):
            runner.settle(len(program.steps))
            dist.barrier()
    finally:
        dist.destroy_process_group()
    runner.look_again()
    return runner.run


@contextmanager
def _blamed(program: Program, step: object, turn: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        where = f"program {program.number}, step {step}, {turn}"
        raise RuntimeError(f"{where}: {type(error).__name__}: {error}") from error


class _Runner:
    def __init__(self, program: Program, rank: int, backend: str, turn: str) -> None:
        self.run = Run()
        self._program = program
        self._rank = rank
        self._backend = backend
        self._turn = turn
        self._delays = delays(program.number, turn, rank)
        self._groups: dict[int, Any] = {0: dist.group.WORLD}
        self._pending: list[tuple[Step, ops.Started]] = []
        self._dropped: list[tuple[Step, ops.Started]] = []
        self._over: list[tuple[Step, ops.Started]] = []

    def step(self, step: Any) -> None:
        late(next(self._delays))
        if not isinstance(step, Step):
            self.settle(step.number)
            return
        group = self._group(step.group)
        ranks = self._program.ranks_of(step.group)
        if self._rank not in ranks:
            return
        if self._backend == "gloo" and step.operation.refused_by_gloo():
            return
        at = ops.Place(ranks.index(self._rank), len(ranks), step.number, group)
        started = step.operation.start(at, is_async=step.ending != "wait")
        if step.ending == "wait":
            self._end(step, started)
        elif step.ending == "drop":
            # Gloo cancels a send when its work is dropped; aikido must not.
            if self._backend != "gloo":
                started.works.clear()
            self._dropped.append((step, started))
        else:
            self._pending.append((step, started))

    def settle(self, number: int) -> None:
        rng = random.Random(
            f"{self._program.number} {self._turn} {self._rank} {number}"
        )
        rng.shuffle(self._pending)
        for step, started in self._pending:
            # Messages of Gloo never complete before somebody waits for them.
            polls = rng.random() < 0.3 and self._backend != "gloo"
            for work in started.works if polls else ():
                while not work.is_completed():
                    late(0.0005)
            self._end(step, started)
        self._pending.clear()
        # A barrier on each group ends its dropped works. All members of a group drop
        # the same works, so that all of them call the barrier.
        for group in sorted({step.group for step, _ in self._dropped}):
            dist.barrier(group=self._group(group))
        for step, started in self._dropped:
            self._end(step, started)
        self._dropped.clear()

    def look_again(self) -> None:
        """Checks that nothing wrote to inputs and results after the run."""
        for step, started in self._over:
            where = f"step {step.number}, {self._turn}"
            self.run.wrong += [f"{where}: {text}" for text in started.memory.wrong()]
            if not _all_same(started.results(), self.run.results[step.number]):
                self.run.wrong.append(f"{where}: the result has changed since")

    def _end(self, step: Step, started: ops.Started) -> None:
        for work in (*started.receives, *started.works):
            work.wait()
        # Read the results at once: a backend that reports completion too early has
        # wrong data now.
        self.run.results[step.number] = started.results()
        self._over.append((step, started))

    def _group(self, index: int) -> Any:
        """The group with this index; all ranks create it before its first step."""
        if index not in self._groups:
            self._groups[index] = self._make(self._program.groups[index - 1])
        return self._groups[index]

    def _make(self, plan: GroupPlan) -> Any:
        world = self._groups[0]._get_backend(torch.device("cpu"))
        ranks = list(plan.ranks)
        # Gloo is only the reference, so one way to make groups is enough for it. Torch
        # splits groups without a device since version 2.14.
        can_split = hasattr(dist.distributed_c10d, "_reconfigure")
        how = "new_group" if self._backend == "gloo" else plan.how
        if how == "split_group" and world.supports_splitting and can_split:
            rest = [r for r in range(self._program.size) if r not in ranks]
            return dist.split_group(split_ranks=[ranks, rest] if rest else [ranks])
        if how == "local":
            if self._rank not in ranks:
                return None
            return dist.new_group(ranks, use_local_synchronization=True)
        return dist.new_group(ranks)


# ---- comparing ----


def judge(program: Program, rank: int, gloo: Run, runs: list[Run]) -> list[str]:
    """Errors in the runs of aikido on this rank; `gloo` is the run of Gloo."""
    wrong = [text for run in runs for text in run.wrong]
    for step in program.steps:
        if not isinstance(step, Step) or step.number not in runs[0].results:
            continue
        ranks = program.ranks_of(step.group)
        at = ops.Place(ranks.index(rank), len(ranks), step.number)
        ours = [run.results[step.number] for run in runs]
        where = f"step {step.number}, rank {at.rank} of {step.operation}"
        if not all(_all_same(ours[0], other) for other in ours[1:]):
            wrong.append(f"{where}: two runs of aikido differ")
        wrong += [
            f"{where}: {text}"
            for text in differences(ours[0], step.operation.expected(at), exact=True)
        ]
        if step.number in gloo.results and step.operation.is_defined_by_gloo(at.rank):
            wrong += [
                f"{where}, beside gloo: {text}"
                for text in differences(ours[0], gloo.results[step.number], exact=False)
            ]
    return wrong


def differences(got: list[Any], expected: list[Any], exact: bool) -> list[str]:
    """Differences in words; empty if there are none."""
    if len(got) != len(expected):
        return [f"{len(got)} results instead of {len(expected)}"]
    found = []
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        if not isinstance(a, torch.Tensor):
            if a != b:
                found.append(f"result {i} is {str(a)[:60]}, not {str(b)[:60]}")
        elif not (same_bits(a, b) if exact else is_close(a, b)):
            found.append(f"result {i}: {_first_difference(a, b)}")
    return found


def _first_difference(a: torch.Tensor, b: torch.Tensor) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} of {list(a.shape)}, not {b.dtype} of {list(b.shape)}"
    a, b = a.reshape(-1), b.reshape(-1)
    at = torch.nonzero(a != b).reshape(-1).tolist()
    if not at:
        return "the same values with other bits"
    first = at[0]
    return (
        f"{len(at)} of {a.numel()} elements differ, the first at {first}: "
        f"{a[first].item()}, not {b[first].item()}"
    )


def _all_same(a: list[Any], b: list[Any]) -> bool:
    return not differences(a, b, exact=True)
