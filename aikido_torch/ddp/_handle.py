# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The hook of DistributedDataParallel, and catching up with the others."""

import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import _C
from aikido_torch._backend import backend_of, catching_up_on
from aikido_torch.ddp._buckets import Bucket, gradients_from, lay_out
from aikido_torch.ddp._decide import Situation, StateCopy, decide
from aikido_torch.ddp._exchange import Copied, Exchange
from aikido_torch.ddp._state import TrainingState
from aikido_torch.errors import ConfigError
from aikido_torch.straggler import Carry, Policy, StepCounters, WaitAll

__all__ = ["CatchUp", "Handle"]

_GROUP_TIMEOUT = timedelta(milliseconds=-1)
_MEAN = dist.ReduceOp(dist.ReduceOp.AVG)
# DDP makes its final buckets at the second forward, with a static graph at the third;
# nothing is skipped before.
_STRICT_STEPS = 2
_STRICT_STEPS_OF_STATIC_GRAPH = 3
_MOST_OUTCOMES = 100_000
_MOST_STEPS = 10_000
# Ranks that are asked for their state before the steps are replayed after all.
_MOST_ASKED = 2


class CatchUp(int):
    """What `catch_up` did: the number of steps that this rank went forward, and how.

    Attributes:
        steps_replayed: by the optimizer, on the gradients that the others committed.
        steps_copied: passed over, because the state of another rank was behind them.
        state_copied_from: that rank; None if there was no copy.
        batches_to_skip: that the data loader has to pass over.
    """

    steps_replayed: int
    steps_copied: int
    state_copied_from: int | None
    batches_to_skip: int

    def __new__(
        cls,
        *,
        steps_replayed: int = 0,
        steps_copied: int = 0,
        state_copied_from: int | None = None,
        batches_to_skip: int = 0,
    ) -> "CatchUp":
        self = super().__new__(cls, steps_replayed + steps_copied)
        self.steps_replayed = steps_replayed
        self.steps_copied = steps_copied
        self.state_copied_from = state_copied_from
        self.batches_to_skip = batches_to_skip
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int | None]]:
        return (), dict(vars(self))

    def __repr__(self) -> str:
        return (
            f"CatchUp(steps_replayed={self.steps_replayed}, "
            f"steps_copied={self.steps_copied}, "
            f"state_copied_from={self.state_copied_from}, "
            f"batches_to_skip={self.batches_to_skip})"
        )


class Handle:
    """What `register` returns. For the thread that trains.

    Attributes:
        outcomes: of the bucket operations, oldest first, the last 100,000.
        by_step: the same added up for each step, the last 10,000.
        steps: optimizer steps that have passed through this rank's hook or `catch_up`.
        replayed_steps: those of them that `catch_up` replayed.
        copied_steps: those of them that `catch_up` passed over with a copy.
        served_copies: of this rank's state, for others.
        skipped_steps: those in which (part of) this rank's own gradient was left out.
        carried_steps: own steps to which something was added that had been left out.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        policy: Policy,
        optimizer: torch.optim.Optimizer,
        *,
        apply: Callable[[], object],
        after_step: Callable[[], object] | None,
        state: TrainingState,
        copy: StateCopy | None,
        batches_per_step: int,
        number: int,
        carries_late: bool = False,
    ) -> None:
        self.steps = 0
        self.replayed_steps = 0
        self.copied_steps = 0
        self.served_copies = 0
        self.skipped_steps = 0
        self.carried_steps = 0
        self._outcomes: deque[_C.Outcome] = deque(maxlen=_MOST_OUTCOMES)
        self._by_step: dict[int, StepCounters] = {}
        self._backend = backend_of(model.process_group)
        self._policy = policy.native()
        self._wait_all = WaitAll().native()
        self._apply = apply
        self._after_step = after_step
        self._state = state
        self._copy = copy
        self._batches_per_step = batches_per_step
        self._buckets: dict[int, Bucket] = {}
        self._carries_late = carries_late and policy != WaitAll()
        self._carries: defaultdict[int, Carry] = defaultdict(Carry)  # by bucket
        self._last_carried = -1
        self._scale = 1.0
        self._are_views = bool(model.gradient_as_bucket_view)
        self._unused: set[int] = set()
        self._running: list[tuple[int, _C.AikidoWork]] = []  # with their step
        self._last_skipped = -1
        self._exchange: Exchange | None = None
        self._skips = not isinstance(policy, WaitAll)
        _, size = self._backend.place
        if self._skips:
            catching_up_on[self._backend] = weakref.ref(self)
        if self._skips and size > 1:
            self._exchange = Exchange(self._backend, number=number)
        self._strict_steps = _STRICT_STEPS
        if model.static_graph:
            self._strict_steps = _STRICT_STEPS_OF_STATIC_GRAPH
            # Some parameters may have no gradient ever, and the hook cannot tell.
            optimizer.register_step_pre_hook(self._note_unused)

    @property
    def outcomes(self) -> deque[_C.Outcome]:
        """How the bucket operations ended; see the class."""
        self._collect()
        return self._outcomes

    @property
    def by_step(self) -> list[StepCounters]:
        """What happened in each step; see the class."""
        self._collect()
        return list(self._by_step.values())

    def catch_up(self) -> CatchUp:
        """Applies every step that is committed but was not taken part in here.

        Call it at the top of the training loop, with nothing of a step half done, and
        pass over as many batches as it says. Parameters and optimizer are then those of
        the other ranks, bit for bit. Gradients are left as they were. The steps are
        replayed, or the state of a rank that is ahead is copied (`StateCopy`); the rank
        that is asked gives it in its own `catch_up`, and sends it while it trains on.

        The steps applied have passed for this rank: what your loop does in every step
        besides, such as an all_reduce of the loss for a log, has to be done for them
        too, or the ranks end up in different calls. Better do it every so many steps,
        behind a barrier.

        Returns:
            The number of optimizer steps applied, as an int that also says how; 0 for
            a rank that is up to date.

        Raises:
            ConfigError: a copied state does not fit; raised on all ranks, nothing of it
                is applied. Or another model was registered on this group since.
        """
        self._check_current()
        before, replayed, copied = self.steps, self.replayed_steps, self.copied_steps
        self._look()
        source = self._come_back() if self._steps_held() > 0 else None
        self._answer()
        return CatchUp(
            steps_replayed=self.replayed_steps - replayed,
            steps_copied=self.copied_steps - copied,
            state_copied_from=source,
            batches_to_skip=(self.steps - before) * self._batches_per_step,
        )

    # ---- coming back ----

    def _steps_held(self) -> int:
        if not self._is_laid_out():
            return 0
        return self._backend.committed_ahead // len(self._buckets)

    def _come_back(self) -> int | None:
        """Until nothing is held any more. Returns the rank whose state was copied."""
        source = None
        rule = self._copy or StateCopy(when="never")
        may_copy = self._copy is not None and self._exchange is not None
        while held := self._steps_held():
            now = Situation(
                # When its log is full, the others wait: nobody is behind more than is
                # held.
                steps_behind=held,
                steps_held=held,
                gradient_bytes=sum(b.scratch.nbytes for b in self._buckets.values()),
                state_bytes=self._state.nbytes() if may_copy else 0,
                may_copy=may_copy,
            )
            decision = decide(rule, now)
            if decision.way == "copy":
                may_copy = False  # once in a call: the rest is little
                copied = self._fetch(rule.timeout_ms / 1e3)
                if copied is not None:
                    self._adopt(copied)
                    source = copied.rank
            for _ in range(decision.steps):
                self._replay()
        return source

    def _replay(self) -> None:
        self._pass_over()
        buckets = list(self._buckets.values())
        with gradients_from(buckets, are_views=self._are_views, unused=self._unused):
            self._apply()
        self._end_step("replayed")
        self.replayed_steps += 1
        if self._after_step is not None:
            self._after_step()

    def _pass_over(self) -> None:
        # The results are here, so these calls send nothing and return at once.
        for index in sorted(self._buckets):
            self._start(self._buckets[index].scratch, self._policy).wait()

    def _fetch(self, timeout_s: float) -> Copied | None:
        exchange = self._exchange
        assert exchange is not None
        for rank in self._candidates()[:_MOST_ASKED]:
            fetch = exchange.ask(rank, self.steps)
            copied = fetch.result(timeout_s, self._refuse)
            exchange.leave(fetch)
            if copied is not None or not fetch.is_over:
                return copied  # who does not answer stands still, as others may
        return None

    def _candidates(self) -> list[int]:
        """Whom to ask, best first: who was in time the last time, the next ranks first.

        By rank from here on, so that several who are late ask different ones.
        """
        own, size = self._backend.place
        others = [(own + i) % size for i in range(1, size)]
        late = set(self._outcomes[-1].skipped) if self._outcomes else set()
        return sorted(others, key=lambda rank: rank in late)

    def _adopt(self, copied: Copied) -> None:
        parts = self._state.read(copied.snapshot)
        if found := self._state.difference(parts):
            own, _ = self._backend.place
            argument = found.path.split(".")[0].split("[")[0]
            text = (
                f"catch_up: {argument} differs between ranks: {found.path} is "
                f"{found.own} on rank {own} but {found.theirs} on rank {copied.rank}; "
                f"nothing was copied; give all ranks the same {argument}."
            )
            assert self._exchange is not None
            self._exchange.tell_failure(text, timeout_s=2.0)
            raise ConfigError(text)
        self._state.apply(parts)
        # The rank has the results of these steps, so they are decided: what is given
        # here counts nowhere, even where a result is still on its way.
        while self.steps < copied.step:
            self._pass_over()
            self._end_step("copied", copied.rank)
            self.copied_steps += 1

    # ---- for others that come back ----

    def _look(self) -> None:
        if self._exchange is None:
            return
        self._exchange.look()
        if self._exchange.failure is not None:
            raise ConfigError(self._exchange.failure)

    def _refuse(self) -> None:
        """While it waits itself, it is no one to copy from."""
        self._look()
        if self._exchange is not None:
            self._exchange.answer(self.steps, None)

    def _answer(self) -> None:
        if self._exchange is not None:
            given = self._exchange.answer(self.steps, self._state.take)
            self.served_copies += len(given)

    def _check_current(self) -> None:
        if not self._skips:
            return
        current = catching_up_on.get(self._backend)
        if current is not None and current() is not self:
            raise ConfigError(
                "Another model was registered on the group of this one since, and "
                "catch_up cannot tell their steps apart; give each model a group of "
                "its own: DistributedDataParallel(net, process_group=new_group(...))."
            )

    # ---- the hook ----

    def _is_laid_out(self) -> bool:
        return self.steps >= self._strict_steps

    def _start(self, tensor: torch.Tensor, policy: _C.PolicyOptions) -> _C.AikidoWork:
        work = self._backend.all_reduce(tensor, _MEAN, policy, 0, _GROUP_TIMEOUT)
        self._running.append((self.steps, work))
        return work

    def _hook(
        self, _: object, bucket: GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            self._check_current()
            self._collect()
            self._scale = self._state.gradient_scale() if self._carries_late else 1.0
        strict = not self._is_laid_out()
        if strict:
            self._buckets[bucket.index()] = lay_out(bucket)
            work = self._start(bucket.buffer(), self._wait_all)
        elif self._carries_late:
            work = self._start_carrying(bucket)
        else:
            work = self._start(bucket.buffer(), self._policy)
        if bucket.is_last():
            if strict:
                # Fewer buckets than before the rebuild.
                for index in [i for i in self._buckets if i > bucket.index()]:
                    del self._buckets[index]
            self._end_step("own", collect=False)
        # DDP takes the value of a Python callback only.
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(_only)
        return future

    def _start_carrying(self, bucket: GradBucket) -> _C.AikidoWork:
        carry = self._carries[bucket.index()]
        if (
            carry.add_to(bucket.buffer(), self._scale)
            and self._last_carried < self.steps
        ):
            self._last_carried = self.steps
            self.carried_steps += 1
        work = self._start(bucket.buffer(), self._policy)
        carry.watch(work, self._backend.place[0])
        return work

    def _note_unused(self, *_: object) -> None:
        if self.steps <= self._strict_steps:
            slices = [s for b in self._buckets.values() for s in b.slices]
            self._unused = {id(s.parameter) for s in slices if s.parameter.grad is None}

    def _end_step(
        self,
        way: Literal["own", "replayed", "copied"],
        copied_from: int | None = None,
        collect: bool = True,
    ) -> None:
        counters = self._counters(self.steps)
        counters.way, counters.copied_from = way, copied_from
        self.steps += 1
        if collect:
            self._collect()

    def _counters(self, step: int) -> StepCounters:
        if step not in self._by_step:
            self._by_step[step] = StepCounters(step)
            if len(self._by_step) > _MOST_STEPS:
                del self._by_step[next(iter(self._by_step))]
        return self._by_step[step]

    def _collect(self) -> None:
        own, _ = self._backend.place
        left = []
        for step, work in self._running:
            if not work.is_completed():
                left.append((step, work))
                continue
            outcome = work.outcome()
            if outcome is None:
                continue
            self._outcomes.append(outcome)
            self._counters(step).add(outcome)
            if own in outcome.skipped and step > self._last_skipped:
                self._last_skipped = step
                self.skipped_steps += 1
        self._running = left


def _only(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]
