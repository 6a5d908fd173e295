# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Random trainings with late, stopped and killed ranks, and their checks.

`case(number)` maps a number to a case. From the folder tests/python, for cases 17 or 0
to 499:

    python -m harness.training_cases 17
    python -m harness.training_cases 0 499

Required in every case: no rank hangs. At the end all live ranks have made the same
number of steps, and their parameters and optimizer states have equal bits, or a message
says why not. A loop that has described all its work to `register` needs no repair. Such
a loop raises no error unless a rank was killed, and then the error names that rank.
"""

import contextlib
import copy
import gc
import hashlib
import io
import logging
import os
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import Options, ddp
from aikido_torch.ddp import StateCopy
from aikido_torch.errors import RanksMayDifferWarning
from aikido_torch.straggler import SkipStraggler
from aikido_torch.testing import late
from aikido_torch.testing._faults import hold_python_lock
from harness.pool import Member, MemberLostError, Pool
from harness.trained_models import MODELS, OPTIMIZERS, batch_for, make_model

GROUP_TIMEOUT_S = 30.0
_DEADLINE_S = 75.0  # of one case
_STEPS = (16, 40)
_STEP_S = 0.002
_UNREGISTERED = ("clip", "rate", "weights")
# Modules that DistributedDataParallel imports when it is constructed.
_PRELOAD = ("torch._dynamo", "torch.distributed.optim")


@dataclass(frozen=True)
class Fault:
    """A fault of one rank just before one of its steps."""

    rank: int
    step: int
    kind: str  # late, lock, stop, kill
    lasts_s: float


@dataclass(frozen=True)
class Case:
    """One training."""

    number: int
    size: int
    steps: int
    model: str
    wrap: dict[str, Any]
    bucket_mb: float
    optimizer: str
    is_wrapped: bool  # the optimizer is wrapped as frameworks do it
    policy: dict[str, Any]
    late: str
    copy: dict[str, Any] | None
    batches: int  # per step
    scaler: float  # first scale; 0: no scaler
    clip: float  # 0: no clipping
    scheduler: str  # "" (none), or the hook that steps it
    unregistered: str  # extra work that register does not know; "": none
    check_every: int
    strict_every: int  # steps; 0: no strict call on the model's group
    barrier_every: int  # 0: none
    meet_every: int  # 0: none; through Handle.every
    save_at: int  # 0: no checkpoint
    has_second: bool  # the loop trains a second model
    log_bytes: int
    faults: tuple[Fault, ...]

    @property
    def victims(self) -> list[int]:
        return [fault.rank for fault in self.faults if fault.kind == "kill"]

    @property
    def told(self) -> bool:
        return self.unregistered == ""


def case(number: int) -> Case:
    """The case of this number; always the same."""
    rng = random.Random(f"training {number}")
    size = rng.choice((2, 3, 3, 3, 4))
    steps = rng.randint(*_STEPS)
    model = rng.choice(list(MODELS))
    static = MODELS[model].has_unused or rng.random() < 0.15
    batches = rng.choice((1, 1, 1, 2, 3)) if not static else 1
    late_way = rng.choice(("drop", "drop", "carry"))
    is_half = MODELS[model].dtype in (torch.float16, torch.bfloat16)
    second = rng.random() < 0.15 and size > 2
    has_strict = rng.random() < 0.2 and not second
    faults = _faults(rng, size, steps)
    # A dead rank could not join the group for the second half.
    can_save = rng.random() < 0.2 and all(f.kind != "kill" for f in faults)
    leaves = rng.random() < 0.15 and size > 2 and not has_strict and not second
    return Case(
        number=number,
        size=size,
        steps=steps,
        model=model,
        wrap={
            "static_graph": static,
            "gradient_as_bucket_view": rng.random() < 0.4,
        },
        bucket_mb=rng.choice((0.0001, 0.001, 25)),
        optimizer=rng.choice(list(OPTIMIZERS)),
        is_wrapped=rng.random() < 0.2,
        policy=_policy(rng, size, leaves),
        late=late_way,
        copy=rng.choice(
            (
                None,
                {"when": "always"},
                {"when": "never"},
                {"when": "fewer_bytes", "least_bytes": 0},
                {"when": "always", "timeout_ms": 100},
            )
        ),
        batches=batches,
        scaler=0.0 if is_half else rng.choice((0.0, 0.0, 256.0, 2.0**127)),
        clip=rng.choice((0.0, 0.0, 0.01, 1.0)),
        scheduler=rng.choice(("", "", "apply", "after_step")),
        unregistered=rng.choice(("", "", "", "", *_UNREGISTERED)),
        check_every=rng.choice((3, 8, 15, 100)),
        strict_every=1 if has_strict else 0,
        barrier_every=rng.choice((0, 0, 7, 11)),
        meet_every=rng.choice((0, 0, 5, 10)) if not second else 0,
        save_at=rng.randint(5, steps - 5) if can_save else 0,
        has_second=second,
        log_bytes=1 << 20 if leaves or rng.random() < 0.2 else 256 << 20,
        faults=faults,
    )


def _policy(rng: random.Random, size: int, leaves: bool) -> dict[str, Any]:
    floor = rng.choice((5, 20, 40))
    least = 1 if size == 2 else rng.choice((None, 1, 2))
    return {
        "min_contributors": least,
        "floor_ms": floor,
        "ceiling_ms": rng.choice((floor, 2 * floor)),
        "max_consecutive_skips": rng.choice((3, 10, 100, 10**6)),
        "divisor": rng.choice(("contributors", "world")),
        "granularity": rng.choice(("shard", "shard", "bucket")),
        "on_log_full": "exclude" if leaves else "wait",
    }


def _faults(rng: random.Random, size: int, steps: int) -> tuple[Fault, ...]:
    found = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(("late", "late", "stop", "lock"))
        lasts = rng.choice((0.05, 0.15, 0.3, 0.5))
        step = rng.choice((rng.randrange(steps), steps - 1, rng.randrange(2, 8)))
        found.append(Fault(rng.randrange(size), step, kind, lasts))
    if rng.random() < 0.15:
        step = rng.randrange(2, steps)
        found.append(Fault(rng.randrange(size), step, "kill", 0.0))
    return tuple(found)


# ---- in each rank ----


@dataclass
class Report:
    """Observations of one rank."""

    steps: int = 0
    bits: str = ""
    replayed: int = 0
    copied: int = 0
    repairs: int = 0
    said: list[str] = field(default_factory=list)
    error: str = ""
    slowest_s: float = 0.0


class _Lines(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class _Wrapped:
    """An optimizer in a wrapper like that of Accelerate."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.state = optimizer.state


class Training:
    """Model, optimizer and handle of one rank."""

    def __init__(self, what: Case, rank: int, group: dist.ProcessGroup | None) -> None:
        self.what, self.rank = what, rank
        torch.manual_seed(what.number)
        self.net = make_model(what.model)
        self.model = DistributedDataParallel(
            self.net, process_group=group, bucket_cap_mb=what.bucket_mb, **what.wrap
        )
        self.optimizer = OPTIMIZERS[what.optimizer](self.net.parameters())
        self.scaler = self.schedule = None
        state: dict[str, Any] = {}
        if what.scaler:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=what.scaler)
            state["scaler"] = self.scaler
        if what.scheduler:
            schedules = torch.optim.lr_scheduler
            self.schedule = schedules.ExponentialLR(self.optimizer, 0.97)
            state["schedule"] = self.schedule
        told: dict[str, Any] = {"state": state}
        if what.scaler or what.clip or what.scheduler == "apply":
            told["apply"] = self.apply
        if what.scheduler == "after_step":
            told["after_step"] = self.schedule.step
        wrapped = _Wrapped(self.optimizer) if what.is_wrapped else self.optimizer
        self.handle = ddp.register(
            self.model,
            optimizer=wrapped,
            policy=SkipStraggler(**what.policy),
            copy=None if what.copy is None else StateCopy(**what.copy),
            batches_per_step=what.batches,
            late=what.late,
            check_every=what.check_every,
            **told,
        )

    def apply(self) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.what.clip:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.what.clip)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        if self.what.scheduler == "apply":
            self.schedule.step()

    def step(self, step: int) -> None:
        self.optimizer.zero_grad()
        for i in range(self.what.batches):
            is_last = i == self.what.batches - 1
            with contextlib.nullcontext() if is_last else self.model.no_sync():
                self._backward(1000 * step + 10 * i + self.rank)
        self._do_unregistered(step)
        if self.what.scaler or self.what.clip or self.what.scheduler == "apply":
            self.apply()
        else:
            self.optimizer.step()
        if self.what.scheduler == "after_step":
            self.schedule.step()

    def _backward(self, seed: int) -> None:
        batch = batch_for(self.what.model, seed)
        loss = self.model(*batch).float().square().mean() * 10
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()

    def _do_unregistered(self, step: int) -> None:
        if self.what.unregistered == "clip":
            torch.nn.utils.clip_grad_value_(self.net.parameters(), 1e-3)
        elif self.what.unregistered == "rate":
            for group in self.optimizer.param_groups:
                group["lr"] = 0.01 / (1 + step)
        elif self.what.unregistered == "weights":
            with torch.no_grad():
                for parameter in self.net.parameters():
                    parameter.clamp_(-0.3, 0.3)

    def save(self) -> bytes:
        file = io.BytesIO()
        others = [s for s in (self.scaler, self.schedule) if s is not None]
        states = [s.state_dict() for s in (self.net, self.optimizer, *others)]
        torch.save(states, file)
        return file.getvalue()

    def load(self, saved: bytes) -> None:
        states = torch.load(io.BytesIO(saved), weights_only=False)
        others = [s for s in (self.scaler, self.schedule) if s is not None]
        for target, state in zip(
            (self.net, self.optimizer, *others), states, strict=True
        ):
            target.load_state_dict(copy.deepcopy(state))

    def bits(self) -> str:
        """A digest of parameters, optimizer state and learning rates."""
        found = hashlib.sha256()
        optimizer = self.optimizer
        for parameter in self.net.parameters():
            found.update(_bytes(parameter))
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                found.update(key.encode())
                is_tensor = isinstance(value, torch.Tensor)
                found.update(_bytes(value) if is_tensor else repr(value).encode())
        for group in optimizer.param_groups:
            found.update(repr(group["lr"]).encode())
        return found.hexdigest()[:16]


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().flatten()
    return flat.view(torch.uint8).numpy().tobytes()


class _Loop:
    """The training loop of one rank, over one or two models."""

    def __init__(self, what: Case, rank: int, report: Report) -> None:
        self.what, self.rank, self.report = what, rank, report
        self.meeting = dist.new_group()
        groups = [None, dist.new_group()] if what.has_second else [None]
        self.trainings = [Training(what, rank, group) for group in groups]
        self.left = [fault for fault in what.faults if fault.rank == rank]
        self.num_barriers = 0

    @property
    def handles(self) -> list[ddp.Handle]:
        return [training.handle for training in self.trainings]

    def run(self, first: int, last: int) -> None:
        step = first
        while True:
            ups = [handle.catch_up() for handle in self.handles]
            step += ups[0]
            self._meet(step)
            if step >= last:
                break
            self._fail(step)
            begin = time.monotonic()
            for training in self.trainings:
                training.step(step)
            took = time.monotonic() - begin
            self.report.slowest_s = max(self.report.slowest_s, took)
            step += 1
            if self.what.strict_every:
                dist.broadcast(torch.zeros(1), 0)
            late(_STEP_S)
        for handle in self.handles:
            handle.close()
        self.report.steps = step

    def _meet(self, step: int) -> None:
        """Runs meetings that are due, and barriers, also of steps caught up."""
        if self.what.meet_every and self.handles[0].every(self.what.meet_every):
            ones = torch.ones(1)
            dist.all_reduce(ones)
            assert ones == self.what.size
        every = self.what.barrier_every
        while every and self.num_barriers < step // every:
            self.num_barriers += 1
            self.handles[0].barrier(self.meeting)

    def _fail(self, step: int) -> None:
        due = [fault for fault in self.left if fault.step <= step]
        self.left = [fault for fault in self.left if fault.step > step]
        for fault in due:
            if fault.kind == "late":
                late(fault.lasts_s)
            elif fault.kind == "lock":
                hold_python_lock(fault.lasts_s)
            elif fault.kind == "stop":
                _stop(fault.lasts_s)
            else:
                os.kill(os.getpid(), signal.SIGKILL)


def _stop(seconds: float) -> None:
    """Like aikido_torch.testing.stop, but with a fork, which starts no interpreter."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            late(seconds)
            # On a busy machine the SIGSTOP may not have taken effect yet.
            while os.getppid() == parent:
                os.kill(parent, signal.SIGCONT)
                late(0.01)
        finally:
            os._exit(0)
    os.kill(parent, signal.SIGSTOP)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def live_through(
    store: dist.Store, tell: object, what: Case, rank: int, life: str
) -> Report:
    """Runs the case on one rank."""
    if gc.get_freeze_count() == 0:
        gc.freeze()  # keeps torch's own objects out of every collection
    report = Report()
    lines = _Lines(report.said)
    logging.getLogger("aikido").addHandler(lines)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _live(store, what, rank, life, report)
        report.said += [
            str(w.message)
            for w in caught
            if issubclass(w.category, RanksMayDifferWarning)
        ]
    except dist.DistBackendError as error:
        report.error = f"{type(error).__name__}: {error}"
    finally:
        logging.getLogger("aikido").removeHandler(lines)
        with contextlib.suppress(dist.DistBackendError):
            if dist.is_initialized():
                dist.destroy_process_group()
        gc.collect()
    return report


def _live(store: dist.Store, what: Case, rank: int, life: str, report: Report) -> None:
    dist.init_process_group(
        "aikido",
        store=dist.PrefixStore(life, store),
        rank=rank,
        world_size=what.size,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
        pg_options=Options(
            straggler_log_bytes=what.log_bytes,
            heartbeat_interval_ms=200,
            heartbeat_timeout_ms=10_000,
        ),
    )
    loop = _Loop(what, rank, report)
    if what.save_at:
        loop.run(0, what.save_at)
        _count(loop, report)
        saved = [training.save() for training in loop.trainings]
        loop = _Loop(what, rank, report)
        for training, state in zip(loop.trainings, saved, strict=True):
            training.load(state)
        loop.left = [f for f in loop.left if f.step >= what.save_at]
        loop.num_barriers = what.save_at // (what.barrier_every or 1)
    loop.run(what.save_at, what.steps)
    _count(loop, report)
    report.bits = " ".join(training.bits() for training in loop.trainings)
    dist.destroy_process_group()


def _count(loop: _Loop, report: Report) -> None:
    report.replayed += sum(handle.replayed_steps for handle in loop.handles)
    report.copied += sum(handle.copied_steps for handle in loop.handles)
    report.repairs += sum(h._state_check.num_repairs for h in loop.handles)


# ---- in the parent process ----


@dataclass
class Verdict:
    """Problems of one case; empty if there are none."""

    case: Case
    wrong: list[str] = field(default_factory=list)
    reports: list[Report | None] = field(default_factory=list)
    took_s: float = 0.0

    def __str__(self) -> str:
        lines = [f"case {self.case.number}: {self.case}"]
        lines += [f"  {text}" for text in self.wrong]
        again = f"python -m harness.training_cases {self.case.number}"
        return "\n".join([*lines, f"  Again: cd tests/python; {again}"])


def try_case(pool: Pool, number: int) -> Verdict:
    """Runs the ranks of one case and checks their reports."""
    what = case(number)
    verdict = Verdict(what)
    members = pool.take(what.size)
    life = f"training {number} {time.monotonic_ns()}"
    begin = time.monotonic()
    for rank, member in enumerate(members):
        member.run(live_through, what, rank, life)
    usable: list[Member] = []
    for rank, member in enumerate(members):
        report = None
        try:
            left_s = begin + _DEADLINE_S - time.monotonic()
            report = member.hear(max(0.5, left_s))
            usable.append(member)
        except MemberLostError as error:
            if rank not in what.victims or str(error) != "died":
                verdict.wrong.append(f"rank {rank}: {error}")
        verdict.reports.append(report)
    for member in members:
        if member not in usable:
            member.end()
    pool.give_back(usable)
    verdict.took_s = time.monotonic() - begin
    _judge(what, verdict.reports, verdict)
    return verdict


def _judge(what: Case, reports: Sequence[Report | None], verdict: Verdict) -> None:
    alive = {rank: r for rank, r in enumerate(reports) if r is not None}
    ended = {rank: r for rank, r in alive.items() if not r.error}
    is_killed = any(reports[rank] is None for rank in what.victims)
    for rank, report in alive.items():
        names_victim = any(f"rank {v}" in report.error for v in what.victims)
        if report.error and not (is_killed and names_victim):
            verdict.wrong.append(f"rank {rank}: {report.error}")
    if len({report.bits for report in ended.values()}) > 1:
        found = {rank: (r.steps, r.bits, r.said) for rank, r in ended.items()}
        if not any(report.said for report in ended.values()):
            verdict.wrong.append(f"ranks differ without a word: {found}")
        elif what.told:
            verdict.wrong.append(f"ranks differ though all was told: {found}")
        elif not is_killed:
            verdict.wrong.append(f"ranks differ and were not repaired: {found}")
    if len({report.steps for report in ended.values()}) > 1:
        steps = {rank: report.steps for rank, report in ended.items()}
        verdict.wrong.append(f"ranks end after different steps: {steps}")
    for rank, report in alive.items():
        if what.told and report.repairs:
            verdict.wrong.append(f"rank {rank} needed repair: {report.said}")
        if what.told and any("register was not told" in text for text in report.said):
            verdict.wrong.append(f"rank {rank} was warned of nothing: {report.said}")


def try_cases(numbers: Iterable[int]) -> list[Verdict]:
    """Runs two cases at a time, because cases wait most of the time."""
    with Pool(_PRELOAD) as pool, ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda number: try_case(pool, number), numbers))


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line with totals of the cases."""
    reports = [r for v in verdicts for r in v.reports if r is not None]
    kinds = Counter(fault.kind for v in verdicts for fault in v.case.faults)
    return (
        f"{len(verdicts)} trainings of {sum(v.took_s for v in verdicts):.0f} s, "
        f"{sum(bool(v.wrong) for v in verdicts)} wrong; faults {dict(kinds)}; "
        f"{sum(r.replayed for r in reports)} steps replayed, "
        f"{sum(r.copied for r in reports)} copied, "
        f"{sum(r.repairs for r in reports)} repairs, "
        f"{sum(bool(r.error) for r in reports)} errors after a kill"
    )


def main(arguments: Sequence[str]) -> int:
    numbers = [int(text) for text in arguments]
    asked = range(numbers[0], numbers[-1] + 1)
    verdicts = try_cases(asked)
    for verdict in verdicts:
        if verdict.wrong:
            print(verdict, flush=True)
    slowest = sorted(verdicts, key=lambda v: -v.took_s)[:5]
    print("slowest:", [(v.case.number, round(v.took_s, 1)) for v in slowest])
    print(summary(verdicts))
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
