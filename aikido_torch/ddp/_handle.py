# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The hook of DistributedDataParallel, and catching up with other ranks."""

import time
import weakref
from collections import deque
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from aikido_torch import _C
from aikido_torch._backend import catching_up_on, check_is_last, option_of
from aikido_torch._job_ranks import say_both
from aikido_torch._steps import tell_passed
from aikido_torch.data._backups import Backups
from aikido_torch.ddp._accumulation import Accumulation
from aikido_torch.ddp._buckets import ModelBuckets
from aikido_torch.ddp._carrying import Carrying
from aikido_torch.ddp._loop_calls import LoopCalls
from aikido_torch.ddp._quiet import leave_quiet_steps, take_quiet_steps
from aikido_torch.ddp._slack import delay_of
from aikido_torch.ddp._step_audit import StepAudit
from aikido_torch.ddp._step_book import StepBook, Way
from aikido_torch.ddp._step_policy import StepPolicy, losses_at_register
from aikido_torch.ddp._step_weight import StepWeight
from aikido_torch.ddp._user_step import UserStep
from aikido_torch.errors import AikidoError, ConfigError, RetryLaterError
from aikido_torch.recovery import _catch_up_policy, _return
from aikido_torch.recovery._backward import after_backward
from aikido_torch.recovery._catch_up import ALL_TAKEN, CatchUp
from aikido_torch.recovery._catch_up_policy import StateCopy
from aikido_torch.recovery._end_check import end_check_of
from aikido_torch.recovery._report import Check
from aikido_torch.recovery._state import TrainingState
from aikido_torch.recovery._state_check import StateCheck
from aikido_torch.recovery._state_transfer import Copied, StateTransfer
from aikido_torch.recovery._together import ANY_STEP, stepped_together
from aikido_torch.straggler import Policy
from aikido_torch.straggler._steps import Steps

__all__ = ["Handle"]

_GROUP_TIMEOUT = timedelta(milliseconds=-1)
_MEAN = dist.ReduceOp(dist.ReduceOp.AVG)
_SUM = dist.ReduceOp(dist.ReduceOp.SUM)
_LOOK_S = 0.001


class Handle:
    """Handle of a registered model. For the thread that trains.

    Attributes:
        outcomes: outcomes of the bucket operations, oldest first, the last 100,000.
        by_step: the same added up for each step, the last 10,000.
        steps: optimizer steps that have passed through this rank's hook or `catch_up`,
            after the steps that the sampler of `register` had finished. The hook counts
            a step in its backward, and a replay before `apply`. So in `apply` it is the
            number of the step, counted from 1, in both cases.
        replayed_steps: steps that `catch_up` replayed.
        copied_steps: steps that `catch_up` skipped through by a copy.
        served_copies: copies of this rank's state for other ranks.
        skipped_steps: steps without this rank's gradient, or without a part of it.
        carried_steps: own steps with an added late gradient.
        weight: of this rank's gradients in the next backward; 1.0 again after it. See
            `aikido_torch.ddp`.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        policy: Policy,
        user_step: UserStep,
        *,
        state: TrainingState,
        copy: StateCopy | None,
        batches_per_step: int,
        number: int,
        backups: Backups,
        audit: StepAudit,
        checking: tuple[Check, int] = ("warn", 100),
        carries_late: bool = False,
        slack: int = 0,
    ) -> None:
        self._steps = backups.first_step
        self._policies = StepPolicy(policy)
        skips = self._policies.skips
        self._calls = LoopCalls(
            model.process_group, number=number, skips=skips, check=checking[0]
        )
        weakref.finalize(self, self._calls.closing())
        self._backend = self._calls.buckets
        self._rescue = partial(_return.rescue, weakref.ref(self))
        self._quiet = self._calls.quiet_steps(self._rescue)
        audit.follow(self._quiet)
        self._book = StepBook.of(self._backend)
        self._user_step, optimizer = user_step, user_step.optimizer
        self._audit = audit
        self._state = state
        self._copy = copy
        self._batches = Accumulation(batches_per_step, first_step=self._steps)
        self._backups = backups
        self._buckets = ModelBuckets.of(model, self._steps)
        is_carrying = carries_late and skips
        self._carrying = Carrying(self._backend.place[0], is_on=is_carrying)
        self._delay = delay_of(self, slack, number)
        self._exchange: StateTransfer | None = None
        # True after a step whose result this rank has not got: its state is invalid.
        self._has_lost_step = False
        _, size = self._backend.place
        log_bytes = int(option_of(self._backend, "straggler_log_bytes"))
        found = losses_at_register(policy, optimizer, size, log_bytes)
        self._calls.losses.tell_all(found)
        if skips:
            catching_up_on[self._backend] = weakref.ref(self)
            stepped_together.add(self)
        if skips and size > 1:
            self._exchange = StateTransfer(self._backend, number=number)
        self._state_check = StateCheck(
            model.module,
            optimizer,
            partial(_exchange_of, weakref.ref(self)),
            place=self._backend.place,
            checking=checking,
            first_step=self._buckets.final_at,
            reasons=audit.findings,
        )
        self._end_check = end_check_of(self, self._exchange, self._state_check)

    @property
    def _policy(self) -> _C.PolicyOptions:
        return self._policies.native(len(self._buckets))

    @property
    def steps(self) -> int:
        """Number of optimizer steps that this rank has done; see the class."""
        take_quiet_steps(self)
        return self._steps

    @property
    def replayed_steps(self) -> int:
        """Steps that `catch_up` replayed."""
        return self._book.replayed_steps

    @property
    def copied_steps(self) -> int:
        """Steps that `catch_up` skipped through by a copy."""
        return self._book.copied_steps

    @property
    def served_copies(self) -> int:
        """Copies of this rank's state for other ranks."""
        return 0 if self._exchange is None else self._exchange.num_served

    @property
    def carried_steps(self) -> int:
        """Own steps with an added late gradient; see the class."""
        return self._carrying.num_steps

    @property
    def _weight(self) -> StepWeight:
        carries = self._carrying.is_on
        return StepWeight(self._quiet.weight, self._policies.policy, carries=carries)

    @property
    def weight(self) -> float:
        """Weight of this rank's gradients in the step; see the class."""
        return self._weight.value

    @weight.setter
    def weight(self, weight: float) -> None:
        # No rank replays the first steps, which wait for all ranks.
        self._weight.set(weight, may_begin=self._steps < self._buckets.final_at)

    @property
    def outcomes(self) -> deque[_C.Outcome]:
        """Outcomes of the bucket operations; see the class."""
        self._collect()
        return self._book.outcomes

    @property
    def by_step(self) -> Steps:
        """The events of each step, and `notes` on the losses by skipping."""
        self._collect()
        return self._book.steps(self._calls.losses.told)

    @property
    def skipped_steps(self) -> int:
        """Steps without this rank's gradient, or a part of it; see the class."""
        self._collect()
        return self._book.skipped_steps

    def every(self, n: int) -> bool:
        """True in a step in which all ranks may do more than train.

        It is true after n steps, 2 n steps and so on, on all ranks with the same
        parameters: `catch_up` takes no rank past such a step. So collectives are safe
        there, to log, evaluate or save:

        ```python
        while (step := step + handle.catch_up()) < steps:
            if handle.every(10):
                dist.all_reduce(mean_loss)
            ...
        ```

        Call it in each step, at one place of the loop, on all ranks; before the step if
        `on_log_full="exclude"`. With other calls in each step, skipping gains nothing.

        Raises:
            ConfigError: n is no whole number, or below 1.
        """
        is_due = self._calls.is_due(n, self.steps)
        if is_due and self._calls.has_own_group:  # states are given only outside calls
            if self._policies.excludes:
                self.barrier(self._calls.group)
            else:
                _return.wait_for_excluded(self)
        return is_due

    def catch_up(self) -> CatchUp:
        """Applies every committed step that this rank has missed.

        Call it at the top of the training loop, with no step half done, and skip as
        many batches as it says. Afterwards parameters and optimizer have the same bits
        as on the other ranks. Gradients are unchanged. The steps are replayed, or the
        state of a rank that is ahead is copied (`StateCopy`). That rank takes the
        copy in its own `catch_up`, and sends it while it trains on.

        The other ranks may have gone on without this rank, so that its missed results
        are not kept any more. Then it copies the state and takes part again. This call
        waits for that, as long as the group's calls wait. The step in which the rank
        learnt of it was thrown away; it counts as a step that was copied later.

        Your loop does not see the applied steps. Work that all ranks must do belongs
        where `every(n)` is true.

        Returns:
            The applied optimizer steps: `.steps` of them, and how. It counts as that
            number in `step += handle.catch_up()`; 0 for a rank that is up to date.

        Raises:
            ConfigError: a copied state does not fit; raised on all ranks, nothing of it
                is applied. Or another model was registered on this group since.
            RetryLaterError: the others went on without this rank, and no rank gave its
                state in time.
            PeerLostError: the others went on without this rank, and a state does not
                help: the text says why.
        """
        if self._quiet.pass_top():
            return ALL_TAKEN
        self._quiet.set_alarm(False)
        self._check_current()
        self._audit.on_catch_up()
        before, replayed, copied = self.steps, self.replayed_steps, self.copied_steps
        self._look()
        limit = self._calls.begin(self.steps)
        self._calls.goal = min(limit, stepped_together.begin(self))
        source = None
        if self._must_copy() or self._steps_behind() > 0:
            source = self._come_back()
        if self._state_check.has_work or (self._exchange and self._exchange.digests):
            repaired_from = _return.repair_by_copy(self)
            source = source if repaired_from is None else repaired_from
        self._calls.end(self.steps)
        has_moved = self.steps > before
        if has_moved:
            self._look()  # short steps are announced before their results
        if self._exchange is not None and self._exchange.asks:
            self._answer()
        self._audit.on_top(self.steps, has_moved=has_moved)
        if not has_moved and source is None:
            return ALL_TAKEN
        return CatchUp(
            steps_replayed=self.replayed_steps - replayed,
            steps_copied=self.copied_steps - copied,
            state_copied_from=source,
            batches_to_skip=self._backups.batches_in(
                before,
                self.steps,
                per_step=self._batches.per_step,
                missing=self._batches.missing(before, self.steps),
            ),
        )

    def barrier(self, group: dist.ProcessGroup) -> None:
        """Waits for all ranks of `group`, and sends the state to ranks that ask for it.

        For the end of an epoch, a checkpoint or a test, where `catch_up` may be called.
        In a barrier of torch, a rank without a place and the others would wait for each
        other.

        Args:
            group: of the same ranks as the model's, of any backend.

        Raises:
            ConfigError: the buckets are reduced in it. In addition, as `catch_up`.
        """
        if group is self._calls.group and not self._calls.has_own_group:
            raise ConfigError(
                "barrier: this is the group of the model, where a rank that is behind "
                "has gradients to reduce; make another one by dist.new_group()."
            )
        work = dist.barrier(group, async_op=True)
        while not work.is_completed():
            if self._must_copy():
                self.catch_up()
            self._look()  # applies no steps, because the loop would not count them
            self._answer()
            time.sleep(_LOOK_S)
        work.wait()

    def close(self, timeout_s: float | None = None) -> None:
        """Catches up and flushes a last time, and compares the states of all ranks.

        For the end of a training, on all ranks, before the model is tested or saved. A
        rank that differs copies the state of the others. `destroy_process_group` does
        the same with a timeout of `shutdown.linger_ms`, unless this was done.

        Args:
            timeout_s: to wait for other ranks; None: that of the group's calls.

        Raises:
            RanksDifferError: with `check="error"`. In addition, as `catch_up`.
        """
        self.catch_up()
        self.flush()
        if self._end_check is not None:
            most_s = self._backend.call_timeout.total_seconds()
            self._end_check.run(self, most_s if timeout_s is None else timeout_s)

    def flush(self) -> int:
        """Applies the updates that `slack` has delayed, in their order, by `apply`.

        Call it between two steps, on all ranks, before a checkpoint or a test. The next
        `slack` steps have no update. Returns the number of updates.
        """
        return 0 if self._delay is None else self._delay.flush(self)

    # ---- catching up ----

    def _steps_held(self) -> int:
        if not self._is_laid_out():
            return 0
        return self._backend.committed_ahead // len(self._buckets)

    def _steps_to_take(self) -> int:
        """The number of `_steps_held` that `every` and the calls of the loop allow."""
        limit = self._calls.allowed(self.steps, self._steps_begun())
        return min(self._steps_held(), limit - self.steps)

    def _steps_begun(self) -> int:
        """Number of next steps after which another rank has begun a further step."""
        if not self._is_laid_out():
            return 0
        return max(0, self._backend.called_ahead - 1) // len(self._buckets)

    def _steps_behind(self) -> int:
        """Steps that other ranks have done, with or without results on this rank.

        Other ranks do not call the next step before. Over a slow link many results may
        still be on their way, so the received results do not show the distance.
        """
        return max(self._steps_held(), self._steps_begun())

    def _limit(self) -> int:
        """The step up to which the present catch_up may go."""
        return self._calls.limit(self.steps, self._steps_begun())

    def _come_back(self) -> int | None:
        """Catches up with all steps. Returns the rank whose state was copied."""
        source = None
        while True:
            if self._must_copy():
                source = _return.return_by_copy(self)
            try:
                copied_from = self._catch_up_held()
            except AikidoError:
                if not self._must_copy():
                    raise
                continue  # the others have excluded this rank meanwhile
            return source if copied_from is None else copied_from

    def _must_copy(self) -> bool:
        is_refused = self._backend.standing == "refused"
        return self._has_lost_step or (is_refused and _return.may_return(self))

    def _catch_up_held(self) -> int | None:
        source = None
        rule = self._copy or StateCopy(when="never")
        own_steps_s = self._book.own_steps_s
        may_copy = self._copy is not None and self._exchange is not None
        may_copy = may_copy and self._limit() == ANY_STEP  # a copy may exceed it
        while (behind := min(self._steps_behind(), self._limit() - self.steps)) > 0:
            now = _catch_up_policy.Situation(
                steps_behind=behind,
                steps_held=min(behind, self._steps_held()),
                gradient_bytes=self._buckets.nbytes,
                state_bytes=self._state.nbytes() if may_copy else 0,
                may_copy=may_copy and not self._backend.is_waited_for,
            )
            decision = _catch_up_policy.decide(rule, now)
            if decision.way == "none":
                break  # missing results arrive while this rank trains on
            if decision.way == "copy":
                may_copy = False  # one copy per call; few steps remain after it
                copied = _return.fetch_from_any(self, rule.timeout_s(own_steps_s))
                if copied is not None:
                    source = copied.rank if self._adopt(copied) is not None else source
            for _ in range(decision.steps):
                self._replay()
        return source

    def _replay(self) -> None:
        # The results have been received, so these calls send nothing and return at
        # once.
        for bucket in self._buckets.in_order():
            self._start(
                bucket.scratch,
                self._policy,
                data_shard=self._backups.replayed_data_shard(self.steps),
            ).wait()
        self._state_check.on_replay(self.steps)
        # Before apply(), as in an own step, where the hook counts the step in the
        # backward.
        self._end_step("replayed")
        self._calls.on_replayed(self.steps, self._book.outcomes[-1])
        self._user_step.replay(self._buckets, self._audit)

    def _ask(self, rank: int, step: int, timeout_s: float) -> Copied | None:
        exchange = self._exchange
        assert exchange is not None
        fetch = exchange.ask(rank, step)
        copied = fetch.result(timeout_s, self._refuse)
        exchange.leave(fetch)
        return copied

    def _candidates(self) -> list[int]:
        return self._book.by_lateness(self._backend.place[1])

    def _adopt(self, copied: Copied) -> dict[str, Any] | None:
        """Applies the copied state and returns its parts.

        None: it is older than this rank's state, or a strict call lies between.
        """
        parts = self._state.read(copied.snapshot)
        if found := self._state.difference(parts):
            assert self._exchange is not None
            text = found.sentence(self._backend.place[0], copied.rank)
            error = self._exchange.failure = ConfigError(say_both(text, self._backend))
            self._exchange.tell_failure(error, timeout_s=2.0)
            raise error
        place = (self.steps, self._backend.num_calls)
        is_refused = self._backend.standing == "refused"
        if is_refused or (copied.step, copied.call) != place:
            try:
                self._backend.skip_through(copied.call)
            except RetryLaterError:
                return None
            except ConfigError:
                # A strict call lies between. Only an excluded rank has no other way.
                if self._must_copy():
                    raise
                return None
        self._state_check.finish()
        self._state.apply(parts)
        self._collect()  # outcomes of the earlier steps
        while self.steps < copied.step:
            self._book.note_copied(self.steps)
            self._end_step("copied", copied.rank)
            tell_passed(self._user_step.optimizer)
        return parts

    # ---- service for other ranks ----
    def _look(self) -> None:
        exchange = self._exchange
        if exchange is None or not exchange.look():
            return
        for step, batches in exchange.take_shorts():
            self._batches.note_short(step, batches)
        if exchange.failure is not None:
            raise exchange.failure

    def _refuse(self) -> None:
        """Refuses to give the state, because this rank itself waits for one."""
        self._look()
        if self._exchange is not None:
            self._exchange.answer(self.steps, None)

    def _answer(self) -> None:
        if self._exchange is not None:
            is_fit = self._backend.standing == "member" and not self._has_lost_step
            notes = self._state_check.digest_notes
            take = partial(self._state.take, notes) if is_fit else None
            self._exchange.answer(self.steps, take)

    def _check_current(self) -> None:
        if self._policies.skips and not self._calls.has_own_group:
            check_is_last(self, self._backend)

    # ---- the hook ----

    def _is_laid_out(self) -> bool:
        return self.steps >= self._buckets.final_at

    def _start(
        self,
        tensor: torch.Tensor,
        policy: _C.PolicyOptions,
        *,
        op: dist.ReduceOp = _MEAN,
        data_shard: int = -1,
    ) -> _C.AikidoWork:
        self._calls.on_bucket()
        work = self._backend.all_reduce(
            tensor, op, policy, 0, _GROUP_TIMEOUT, data_shard, self._quiet.weight.value
        )
        self._book.start(self.steps, work, tensor.numel())
        return work

    def _on_forward(self, module: torch.nn.Module, _: object) -> None:
        self._backups.begin_forward(self.steps, module)

    def _reduce(self, bucket: GradBucket, buffer: torch.Tensor) -> _C.AikidoWork:
        """Starts the sum of a bucket in `buffer`. QuietSteps::start is for quiet
        steps.
        """
        if bucket.index() == 0:
            take_quiet_steps(self)
            self._quiet.weight.begin_step()
            self._check_current()
            self._calls.check()
            batches = self._batches.on_hook(self.steps)
            if batches is not None and self._exchange is not None:
                self._exchange.tell_short(self.steps, batches)
            if self._backups.sampler is not None:
                self._collect()
            self._backups.begin_backward(self.steps)
            if self._carrying.is_on:
                self._carrying.scale = self._state.gradient_scale()
        strict = not self._is_laid_out()
        if strict:
            self._buckets.lay_out(bucket)
            is_sum = self._backups.prepare_strict(buffer)
            op = _SUM if is_sum else _MEAN
            work = self._start(buffer, self._policies.strict, op=op)
        elif self._carrying.is_on:
            self._carrying.add_to(bucket, self.steps)
            work = self._start(buffer, self._policy)
            self._carrying.watch(bucket, work)
        else:
            data_shard = self._backups.own_data_shard(self.steps)
            work = self._start(buffer, self._policy, data_shard=data_shard)
        # Other work, while the bucket is being reduced.
        if bucket.index() == 0:
            self._calls.on_hook(self.steps)
            self._state_check.begin(self.steps)
            if self._book.has_many:
                self._collect()
        if bucket.is_last():
            after_backward(self._calls.check)
            in_buckets = None if strict else self._buckets.parameter_ids
            self._audit.on_backward(self.steps, in_buckets)
            self._state_check.on_last_hook()
            if strict:
                after_backward(self._buckets.note_unused)
                self._buckets.end_strict_step(bucket.index())
            self._quiet.weight.end_step()
            self._end_step("own", collect=False)
            leave_quiet_steps(self)
        return work

    def _end_step(
        self, way: Way, copied_from: int | None = None, collect: bool = True
    ) -> None:
        if way != "own":
            self._quiet.weight.drop_step()
        self._book.end_step(self._steps, way, copied_from)
        self._backups.end_step(self._steps, is_own=way == "own")
        self._steps += 1
        stepped_together.on_step(self, is_own=way == "own")
        if collect:
            self._collect()

    def _collect(self) -> None:
        take_quiet_steps(self)
        for step, outcome in self._book.collect():
            self._backups.add(step, outcome)


# The end hook of a group keeps its check alive; the check must not keep the handle.
def _exchange_of(known: "weakref.ref[Handle]") -> StateTransfer | None:
    return None if (handle := known()) is None else handle._exchange
