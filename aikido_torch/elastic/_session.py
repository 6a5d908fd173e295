# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Session of one process in an elastic job.

```
             admitted            commit            boundary
 request ---------------> step --------> boundary ----------> next step
                           ^  |                                  |
       the same items      |  | a call failed: a member died     | notice
                           +--+ survivors agree on the roster    v
                                                               left
```
"""

import functools
import os
import signal
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

import aikido_torch._calls as calls
from aikido_torch.elastic import _group
from aikido_torch.elastic._agreement import Watch, agree
from aikido_torch.elastic._batches import Batches
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._events import log_event
from aikido_torch.elastic._goodput import Goodput
from aikido_torch.elastic._gradients import Gradients
from aikido_torch.elastic._notices import (
    Source,
    Watcher,
    evicted_members,
    objection,
)
from aikido_torch.elastic._roster import JobEndsError, Member, Roster
from aikido_torch.elastic._sampler import Assignment, ElasticSampler
from aikido_torch.elastic._sharded import ShardedOptimizer, Shards
from aikido_torch.elastic._small_state import SmallState
from aikido_torch.errors import (
    AikidoError,
    ConfigError,
    InternalError,
    TimedOutError,
)
from aikido_torch.recovery._state import Stateful, TrainingState

__all__ = ["Job", "Limits", "Step"]


class Step:
    """Batches of this member in one step, in a `for` loop. Made by `Job.steps`.

    Attributes:
        number: of the step, from 0.
        is_repeat: True if an earlier attempt failed because a member died.
        assignment: items of all members in this step.
    """

    def __init__(self, job: "Job", assignment: Assignment, *, is_repeat: bool) -> None:
        self.number, self.is_repeat = assignment.step, is_repeat
        self._job, self.assignment = job, assignment
        self._is_over = False

    def __iter__(self) -> Iterator[Any]:
        if self._is_over:
            raise ConfigError(
                f"elastic: step {self.number} has one loop over its batches; a second "
                "loop would train the items twice."
            )
        batches = self.assignment.batches_of(self._job.name)
        total = self.assignment.num_items
        for place, indices in enumerate(batches):
            self._job._begin_batch(
                len(indices) / total, is_last=place == len(batches) - 1
            )
            yield self._job._read(indices)
        self._is_over = True
        self._job._end_batches(self.number)


@dataclass(frozen=True)
class Limits:
    """Limits of a session, in seconds.

    Attributes:
        timeout_s: of each wait for other members.
        grace_s: silence after which a member counts as lost.
    """

    timeout_s: float
    grace_s: float


class Job:
    """Session of this process in a job whose members come and go; made by `join`.

    All methods are for the training thread.

    Attributes:
        model: the model, as it was given.
        sampler: items of the job, equal on all members.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Batches,
        state: Mapping[str, Stateful],
        endpoint: Endpoint,
        *,
        role: str,
        host: str,
        notices: Sequence[Source],
        seed: int,
        limits: Limits,
    ) -> None:
        self.model = model
        self.sampler = ElasticSampler(
            batches.num_items, batches.batch_size, shuffle=batches.shuffle, seed=seed
        )
        self._batches = batches
        self._small_state = SmallState(model, optimizer, state)
        self._training = TrainingState(model, optimizer, state, has_rng=True)
        self._shards: Shards | None = None
        groups = None
        if isinstance(optimizer, ShardedOptimizer):
            groups = optimizer.shards
        self._gradients = Gradients(model.parameters(), groups=groups)
        self._limits = limits
        self._endpoint = endpoint
        handle = _group.begin_alone(limits.timeout_s)
        self._me = Member(
            number=endpoint.add("requests"),
            role=role,
            handle=handle,
            host=host,
            pid=os.getpid(),
        )
        self._goodput = Goodput(time.monotonic())
        self._roster = Roster(epoch=0, members=(self._me,))
        self._commit = _group.Commit(0, ())
        self._has_state = False
        self._outcome: Literal["open", "committed", "failed"] = "open"
        # Undo of the last two optimizer steps, by step. A member that is one step ahead
        # of another survivor may fail in the following step before it goes back.
        self._undo: dict[int, Callable[[], None]] = {}
        self._before: Callable[[], None] | None = None
        self._events: list[tuple[str, int, int]] = []
        self._skip_steps_of(optimizer)
        self._watch = Watch(endpoint, self._me.number, _warn_of_store)
        if isinstance(optimizer, ShardedOptimizer):
            self._shards = Shards(optimizer, self.name, self._watch.has_alarm)
        is_main = threading.current_thread() is threading.main_thread()
        self._notices = Watcher(
            notices,
            signals=(signal.SIGTERM, signal.SIGUSR1) if is_main else (),
            on_problem=_warn,
        )

    @property
    def name(self) -> str:
        """Name of this member in the job; no other member ever has it."""
        return str(self._me.number)

    @property
    def role(self) -> str:
        """Role of this member: "reliable" or "transient"."""
        return self._me.role

    @property
    def roster(self) -> Roster:
        """Present members, in rank order."""
        return self._roster

    @property
    def evicting(self) -> bool:
        """True after an eviction notice: this member leaves at the next boundary."""
        has_notice = self._notices.notice is not None
        return has_notice or self._watch.notice_s() is not None

    @property
    def events(self) -> list[tuple[str, int, int]]:
        """Changes of the members so far: what happened, step, number of members."""
        return list(self._events)

    def evict(self) -> None:
        """Gives this member an eviction notice; it leaves at the next boundary."""
        self._notices.add("job.evict", "the program has called it", 0.0)

    def steps(self, until: int) -> Iterator[Step]:
        """Steps of the job, until `until` steps are committed or this member leaves.

        Members join, leave and die between two steps. A step that failed because a
        member died comes again with the same items; `optimizer.step()` does nothing in
        the failed attempt.

        Args:
            until: number of committed steps at which the training ends, the same on all
                members.

        Raises:
            AbortedError: too few reliable members are alive, or a state is lost.
            ConfigError: the loop over the batches of a step ended early.
        """
        is_repeat = False
        while self.sampler.step < until:
            if not is_repeat and self._pass_boundary():
                return
            step = self._begin_step(is_repeat=is_repeat)
            self._goodput.begin_step(time.monotonic())
            yield step
            if not step._is_over:
                raise ConfigError(
                    f"elastic: the loop over the batches of step {step.number} ended "
                    "early, so the other members wait; read all batches of a step."
                )
            is_repeat = self._outcome == "failed"
            if is_repeat:
                self._recover()
            elif self._outcome == "open":
                raise ConfigError(
                    f"elastic: optimizer.step() was not called in step {step.number}; "
                    "call it after the loop over the batches of each step."
                )
            else:
                self.sampler.commit()
                self._before = None
                self._goodput.commit(time.monotonic())
                self._watch.report(self._status)
        self._leave_finished_job()

    # ---- a step ----

    def _begin_step(self, *, is_repeat: bool) -> Step:
        shards = self._shards
        if not self.sampler.is_assigned:
            names = [str(m.number) for m in self._roster.members]
            self.sampler.assign(shards.trainers(self._roster) if shards else names)
        self._before = self._small_state.keep()
        self._outcome = "open"
        if shards:
            self._gradients.begin(shards.reduce, shards.owned)
        else:
            self._gradients.begin(lambda _, flat: calls.all_reduce(flat, async_op=True))
        return Step(self, self.sampler.assignment, is_repeat=is_repeat)

    def _begin_batch(self, share: float, *, is_last: bool) -> None:
        self._gradients.begin_batch(share, is_last=is_last)

    def _read(self, indices: tuple[int, ...]) -> Any:
        return self._batches.read(indices)

    def _end_batches(self, step: int) -> None:
        failure = self._gradients.finish()
        if failure is None and self._shards is None:
            self._try_commit(step)
        elif failure is not None:
            self._outcome = "failed"

    def _try_commit(self, step: int) -> None:
        try:
            if self._shards is not None:
                self._shards.exchange()
            self._commit = _group.commit(
                step, len(self._watch.waiting()), is_leaving=self.evicting
            )
            self._outcome = "committed"
        except (ConfigError, InternalError, JobEndsError):
            raise
        except AikidoError:
            self._outcome = "failed"
            for p in self.model.parameters():
                p.grad = None

    def _skip_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        step = optimizer.step

        @functools.wraps(step)
        def step_if_committed(_: Any, *args: Any, **options: Any) -> Any:
            if self._outcome == "failed":
                return None
            if self._shards is None:
                return step(*args, **options)
            before, undo = self._before, self._shards.keep()
            result = step(*args, **options)

            def undo_all() -> None:
                undo()
                if before is not None:
                    before()

            number = self.sampler.step
            kept = {n: u for n, u in self._undo.items() if n == number - 1}
            self._undo = kept | {number: undo_all}
            self._try_commit(number)
            return result

        # A method, because schedulers bind the function that they find.
        optimizer.step = types.MethodType(step_if_committed, optimizer)  # type: ignore[method-assign]

    # ---- changes of the members ----

    def _pass_boundary(self) -> bool:
        """Admits and dismisses members; returns True if this member has left."""
        commit, self._commit = self._commit, _group.Commit(0, ())
        if not commit.num_waiting and not commit.leaving:
            return False
        leaving = self._leaving_of(commit)
        members = self._roster.members
        text = objection(
            [str(number) for number in leaving],
            {str(m.number): m.role for m in members},
        )
        if text is not None:
            _warn(text)
        if not any(m.is_reliable for m in members if m.number not in leaving):
            self._note("ended")
            self.close()
            return True
        try:
            roster = self._next_roster(commit, leaving)
        except (ConfigError, InternalError, JobEndsError):
            raise
        except AikidoError:
            # The others may be connected to each other already.
            if self._me.number in leaving:
                return self._leave()
            self._recover()
            return False
        if roster.find(self._me.number) is None:
            return self._leave()
        self._enter_or_recover(roster)
        return False

    def _leave(self) -> bool:
        self._note("left")
        self.close()
        return True

    def _leaving_of(self, commit: _group.Commit) -> set[int]:
        """Numbers of the members that leave, with the others of their hosts."""
        members = self._roster.members
        noticed = [str(members[rank].number) for rank in commit.leaving]
        hosts = {str(m.number): m.host for m in members}
        return {int(name) for name in evicted_members(noticed, hosts)}

    def _next_roster(self, commit: _group.Commit, leaving: set[int]) -> Roster:
        members = self._roster.members
        leader = self._roster.leader
        text = None
        if leader == self._me:
            joins = self._watch.waiting()[: commit.num_waiting]
            roster = self._roster.changed(
                self._endpoint.add("epoch"), without=leaving, joins=joins
            )
            roster = self._endpoint.follow(self._roster, roster)
            for member in joins:
                self._endpoint.admit(member, roster)
            text = roster.encode()
        source, alarm = members.index(leader), self._watch.has_alarm
        return Roster.decode(_group.share_text(text, source, alarm))

    def _enter_or_recover(self, roster: Roster) -> None:
        try:
            self._enter(roster)
        except (ConfigError, InternalError, JobEndsError):
            raise
        except AikidoError:
            self._recover()

    def _enter(self, roster: Roster) -> None:
        """Connects to the members of a roster, and copies states if they differ."""
        lost = {m.number for m in self._roster.members} - {
            m.number for m in roster.members
        }
        self._roster = roster
        self._watch.follow(roster)
        _group.connect(roster, self._limits.timeout_s)
        self._copy_states(roster)
        if self.sampler.is_assigned:
            self.sampler.lose([str(number) for number in lost])
        self._note("members")

    def _copy_states(self, roster: Roster) -> None:
        steps = _group.compare_steps(self.sampler.step, has_state=self._has_state)
        known = [step for step in steps if step >= 0]
        if not known:
            raise JobEndsError(
                "elastic: no member has the state of the job any more; start it again "
                "from its last checkpoint."
            )
        # The state of a shard is on few members, so members that are ahead go back.
        common = max(known) if self._shards is None else min(known)
        if self._shards is not None and self._has_state:
            self._go_back_to(common)
        is_donor = [
            step == common or (self._shards is not None and step >= 0) for step in steps
        ]
        donors = [rank for rank, has_common in enumerate(is_donor) if has_common]
        behind = [rank for rank, has_common in enumerate(is_donor) if not has_common]
        rank = roster.members.index(self._me)
        sources = {r: donors[i % len(donors)] for i, r in enumerate(behind)}
        if rank in sources:
            self._load(_group.receive(sources[rank], alarm=self._watch.has_alarm))
        elif targets := [r for r, source in sources.items() if source == rank]:
            snapshot = self._training.take(self._notes)
            _group.send(snapshot, targets, self._watch.has_alarm)
        self._undo = {}
        if self._shards is not None:
            self._shards.follow(roster)

    def _go_back_to(self, step: int) -> None:
        """Undoes the last step if a survivor has not committed it."""
        if self.sampler.step == step:
            return
        if step not in self._undo or self.sampler.step != step + 1:
            raise InternalError(
                f"elastic: this member is at step {self.sampler.step}, but another "
                f"survivor is at step {step}; please report this."
            )
        self._undo.pop(step)()
        self.sampler.roll_back()
        self._goodput.roll_back()
        self._note("rolled back")

    def _notes(self) -> dict[str, Any]:
        shards = None if self._shards is None else self._shards.notes()
        return {"sampler": self.sampler.state_dict(), "shards": shards}

    def _load(self, snapshot: Any) -> None:
        parts = self._training.read(snapshot)
        if found := self._training.difference(parts):
            raise ConfigError(
                f"elastic: the state of the job does not fit: {found.path} is "
                f"{found.own} here but {found.theirs} in the job; start this process "
                "with the model and the optimizer of the job."
            )
        self._training.apply(parts)
        self.sampler.load_state_dict(parts["notes"]["sampler"])
        if self._shards is not None:
            self._shards.load(parts["notes"]["shards"])
        self._before = None
        self._has_state = True

    def _recover(self) -> None:
        """Goes on with the survivors of a death, at the begin of the failed step."""
        if self.sampler.step in self._undo:
            self._undo.pop(self.sampler.step)()
        if self._before is not None:
            self._before()
        end = time.monotonic() + self._limits.timeout_s
        while True:
            roster = agree(
                self._endpoint,
                self._roster,
                self._me,
                self._lost_numbers,
                grace_s=self._limits.grace_s,
                timeout_s=self._limits.timeout_s,
            )
            if roster.find(self._me.number) is None:
                raise JobEndsError(
                    f"elastic: member {self.name} was silent for more than "
                    f"{self._limits.grace_s:g} s, so the other members went on without "
                    "it; start the process again to join anew."
                )
            try:
                self._enter(roster)
                return
            except (ConfigError, InternalError, JobEndsError):
                raise
            except AikidoError:
                if time.monotonic() > end:
                    raise

    def _lost_numbers(self) -> list[int]:
        members = self._roster.members
        return [members[r].number for r in _group.lost_ranks() if r < len(members)]

    # ---- begin and end ----

    def found(self, min_members: int, timeout_s: float) -> None:
        """Begins the job with this member and `min_members` - 1 others."""
        alone = Roster(epoch=self._endpoint.add("epoch"), members=(self._me,))
        self._has_state = True
        self._roster = alone
        self._watch.follow(alone)
        if self._shards is not None:
            self._shards.follow(alone)
        end = time.monotonic() + timeout_s
        while len(self._watch.waiting()) < min_members - 1:
            if time.monotonic() > end:
                raise TimedOutError(
                    f"elastic.join: {len(self._watch.waiting()) + 1} of {min_members} "
                    f"members have come in {timeout_s:g} s; start the others, or give "
                    "a smaller min_members."
                )
            time.sleep(0.01)
        self._commit = _group.Commit(min_members - 1, ())
        self._note("founded")
        self._pass_boundary()

    def enter_first(self, timeout_s: float) -> None:
        """Waits for admission, and receives the state of the job."""
        self._enter_or_recover(self._endpoint.request(self._me, timeout_s))

    def _note(self, what: str) -> None:
        step, members = self.sampler.step, len(self._roster.members)
        self._events.append((what, step, members))
        log_event(what, member=self.name, step=step, members=members)

    def _status(self) -> str:
        """Text of the status after a committed step, for the store."""
        return self._goodput.status(
            self._roster.members,
            step=self.sampler.step,
            epoch=self.sampler.epoch,
            stage=1 if self._shards is None else int(self._shards.stage),
            now_s=time.monotonic(),
            wall_s=time.time(),
        ).encode()

    def _leave_finished_job(self) -> None:
        if self._roster.leader == self._me:
            self._endpoint.set("ended", str(self.sampler.step))
        self.close()

    def close(self) -> None:
        """Ends the session's threads and removes its hooks from the model."""
        self._watch.close()
        self._notices.close()
        self._gradients.close()


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=1)


def _warn_of_store(text: str) -> None:
    _warn(
        f"{text} The training goes on, but no process can join, and the survivors of a "
        "death cannot agree."
    )
