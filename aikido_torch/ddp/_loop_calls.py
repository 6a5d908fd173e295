# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""The calls that the loop makes besides the buckets, as a handle tracks them."""

import sys
import weakref
from collections.abc import Callable, Collection
from functools import partial

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import backend_of, note_bucket_backend
from aikido_torch._job_ranks import say_both
from aikido_torch._own_groups import close, group_beside, why_no_group_beside
from aikido_torch.data._backups import late_in
from aikido_torch.ddp._call_watch import CallWatch
from aikido_torch.ddp._every import Every
from aikido_torch.ddp._losses import CallNames, Losses
from aikido_torch.ddp._strict_calls import StrictCalls
from aikido_torch.errors import ConfigError
from aikido_torch.recovery._agreement import gather
from aikido_torch.recovery._report import Check, report

__all__ = ["LoopCalls"]

_ANY = sys.maxsize
_LEFT_OUT = (
    'rank {rank} of group "{group}" leaves out this call: catch_up() took it past the '
    "step. Make the call where handle.every(n) is true."
)
_MISSED = (
    "catch_up() has taken this rank past steps in which your loop calls on the model's "
    'group "{name}". Other ranks have made {count} calls there that this rank has not '
    "made, and calls since then may have got data of an earlier step. Make calls that "
    "are not made in each step where handle.every(n) is true, instead of where "
    "step % n == 0: catch_up() goes past no such step."
)


def _nothing() -> None:
    pass


# C++ holds this callable, which must not keep the LoopCalls alive: it holds the C++
# object.
def _check(known: "weakref.ref[LoopCalls]") -> None:
    if (calls := known()) is not None:
        calls.check()


class LoopCalls:
    """The calls of one handle's loop. For the training thread only.

    All ranks of `group` construct it together.

    Args:
        group: the model's group.
        number: number of the model, equal on all ranks.
        skips: True if the policy may skip; otherwise the buckets stay on `group`.
        check: the argument of `register`.

    Attributes:
        group: the argument.
        goal: the step up to which the present `catch_up` may go, set by the handle;
            calls of the loop may give a lower limit.
        buckets: the backend that reduces the buckets.
        why_shared: the reason why `buckets` is the backend of `group` although the
            policy may skip; "" if it is not.
        losses: ways in which the loop loses the gain of skipping.
    """

    def __init__(
        self, group: dist.ProcessGroup, *, number: int, skips: bool, check: Check
    ) -> None:
        self.group = group
        self.goal = _ANY
        self._check = check
        self._has_moved = self._has_reported = False
        self._skips = skips and backend_of(group).place[1] > 1
        self._every = Every()
        self._strict = StrictCalls()
        self._watch: CallWatch | None = None
        self._own_group: dist.ProcessGroup | None = None
        self._calls = self.buckets = backend_of(group)
        self._top = self._made_before = 0
        self._num_buckets = 0  # calls of buckets, if the buckets share the loop's group
        self._names: CallNames | None = None
        self.losses = Losses()
        self.why_shared = ""
        _, size = self._calls.place
        if not skips or size == 1:
            return
        self.why_shared = max(gather(why_no_group_beside(group), group))
        if self.why_shared:
            self._warn()
            return
        self._own_group = group_beside(group, number=number)
        self.buckets = backend_of(self._own_group)
        note_bucket_backend(self._calls, self.buckets)
        self._watch = CallWatch(
            self._calls,
            self.buckets,
            number=number,
            at_end=partial(close, self._own_group),
        )

    def _warn(self) -> None:
        self.losses.tell(
            "group",
            "register: the buckets of this model stay on the model's group, since "
            f"{self.why_shared}. Each call of your loop on that group (broadcast, "
            "all_reduce, barrier) keeps a late rank from catching up. Make these calls "
            "where handle.every(n) is true, or on another group.",
        )

    def closing(self) -> Callable[[], None]:
        """Function that ends the bucket group soon, in a thread; it holds no reference
        to this.
        """
        return _nothing if self._watch is None else self._watch.ended.set

    def check(self) -> None:
        """Raises the error that the watch has found."""
        if self._watch is not None and self._watch.failure:
            raise ConfigError(self._watch.failure)

    def fail_on(self, ranks: Collection[int], text: str) -> None:
        """Tells each of `ranks` to fail: its `check` raises `text`.

        A rank that waits for a bucket raises it there.
        """
        if self._watch is not None:
            self._watch.fail_on(ranks, text)

    @property
    def num_waiting(self) -> int:
        """Calls on the model's group that others have made and this rank has not."""
        return int(self._calls.called_ahead) if self._watch is not None else 0

    def refuse_waiting(self, text: str) -> None:
        """Ends these calls: all ranks raise `text`, this one at once."""
        if self._watch is not None:
            self._watch.refuse(say_both(text, self._calls), self.num_waiting)
        self.check()

    @property
    def has_own_group(self) -> bool:
        """True if the buckets are reduced on a group of their own."""
        return self._own_group is not None

    @property
    def has_failed(self) -> bool:
        """True if `check` raises."""
        return self._watch is not None and bool(self._watch.failure)

    def is_due(self, n: int, steps: int) -> bool:
        """Answers `Handle.every`."""
        is_due = self._every.is_due(n, steps)
        if is_due:
            self._strict.on_meeting()
        return is_due

    # ---- catch_up ----

    def begin(self, steps: int) -> int:
        """`catch_up` begins. Returns the step up to which it may go."""
        self._every.on_catch_up()
        self.losses.on_catch_up()
        if self._names is not None:
            self._tell_names(self._names)
        if self._watch is not None:
            self.check()
            if self._watch.told:
                self._repair(self._watch, steps)
        self._top, self._made_before = steps, self._num_calls()
        self._strict.on_top(steps, self._made_before)
        return self._every.limit(steps)

    def allowed(self, steps: int, begun: int) -> int:
        """The step up to which a `catch_up` that begins now may go."""
        return min(self._every.limit(steps), self._limit(steps, begun, moved=0))

    def limit(self, steps: int, begun: int) -> int:
        """The step up to which this `catch_up` may go.

        Args:
            steps: steps that this rank has done.
            begun: number of the next steps after which another rank has begun a further
                step.
        """
        return min(self.goal, self._limit(steps, begun, moved=steps - self._top))

    def _limit(self, steps: int, begun: int, *, moved: int) -> int:
        if self._watch is None:
            more = self._strict.limit_on_shared_group() if self.why_shared else _ANY
        else:
            ahead = self._calls.called_ahead
            more = self._strict.limit(moved=moved, begun=begun, ahead=ahead)
        return _ANY if more == _ANY else steps + more

    def on_replayed(self, steps: int, outcome: _C.Outcome) -> None:
        """A step was replayed with this outcome."""
        if late_in(outcome) <= {self._calls.place[0]}:
            self._strict.note_in_time(steps - self._top)

    def end(self, steps: int) -> None:
        """`catch_up` ends."""
        moved = steps - self._top
        if moved == 0:
            self._strict.end_top(steps, self._made_before)
            if self._strict.per_step > 0:
                self._begin_names()
            return
        made = self._num_calls() - self._made_before
        count = self._strict.on_moved(moved=moved, made=made)
        if self._watch is not None:
            self._leave_out(count, tells=not self._strict.are_free)
            self._watch.on_moved(steps)
            self._has_moved = True
            self._repair(self._watch, steps)  # before the loop makes its next call
        self._strict.end_top(steps, self._num_calls())
        if self._strict.per_step > 0:
            self._begin_names()

    def _begin_names(self) -> None:
        if self._names is None and self._skips:
            self._names = CallNames()
            self._names.begin()

    def _num_calls(self) -> int:
        return self._calls.num_calls - self._num_buckets

    def _tell_names(self, names: CallNames) -> None:
        """Reports the calls that were watched in the last step."""
        names.end()
        self.losses.tell_calls(
            self._strict.per_step, names.found, is_shared=not self.has_own_group
        )

    def _leave_out(self, count: int, *, tells: bool) -> None:
        rank, _ = self._calls.place
        text = _LEFT_OUT.format(rank=rank, group=self._calls.group_name)
        for _ in range(count):
            self._calls.leave_out_call(text, tells)

    def _repair(self, watch: CallWatch, steps: int) -> None:
        """Skips the numbers of calls that other ranks made in steps that this rank has
        passed.
        """
        missing = watch.missing(steps)
        if missing <= 0 or not self._has_moved:
            return
        self._leave_out(missing, tells=False)
        watch.on_repaired(missing)
        if not self._has_reported:
            self._has_reported = True
            report(
                _MISSED.format(count=missing, name=self._calls.group_name), self._check
            )

    # ---- quiet steps ----

    def quiet_steps(self, rescue: Callable[[BaseException], bool]) -> _C.QuietSteps:
        """A new native record of quiet steps; calls of the loop are watched in these
        steps too.

        Args:
            rescue: called if a bucket's call fails; see `_C.hook_work`.
        """
        check = partial(_check, weakref.ref(self))
        quiet = _C.QuietSteps(self.buckets, self._calls, check, rescue)
        if self._watch is not None:
            self._watch.quiet = quiet
        return quiet

    def on_quiet(self, step: int, count: int, *, has_begun: bool) -> None:
        """`count` quiet steps from `step` on are over, without a call of the loop.

        Args:
            step: the first of them.
            count: number of quiet steps.
            has_begun: True if the loop has called catch_up since.
        """
        calls = self._num_calls()
        for number in range(step, step + count + has_begun):
            self._strict.on_top(number, calls)
            self._strict.on_hook(calls)
            self._strict.end_top(number, calls)
        if count > 0:
            self._every.on_backward()
        if has_begun:
            self._every.on_catch_up()
        if self._watch is not None:
            self._watch.on_quiet()

    # ---- the backward ----

    def on_bucket(self) -> None:
        """An operation of a bucket is about to begin."""
        if not self.has_own_group:
            self._num_buckets += 1

    def on_hook(self, step: int) -> None:
        """The backward of `step` begins."""
        self._every.on_backward()
        if self._skips:
            self.losses.on_own_step()
        if self._watch is not None:
            self._strict.on_hook(self._watch.on_hook(step))
