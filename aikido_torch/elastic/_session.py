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
import socket
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch

import aikido_torch._calls as calls
from aikido_torch.elastic import _group
from aikido_torch.elastic._agreement import Watch, agree
from aikido_torch.elastic._batches import Batches
from aikido_torch.elastic._endpoint import Endpoint
from aikido_torch.elastic._events import log_event
from aikido_torch.elastic._goodput import Goodput
from aikido_torch.elastic._gradients import Gradients
from aikido_torch.elastic._roster import Member, Roster
from aikido_torch.elastic._sampler import Assignment, ElasticSampler
from aikido_torch.errors import (
    AbortedError,
    AikidoError,
    ConfigError,
    InternalError,
    TimedOutError,
)
from aikido_torch.recovery._state import Stateful, TrainingState

__all__ = ["Job", "Step"]


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
        seed: int,
        timeout_s: float,
        grace_s: float,
    ) -> None:
        self.model = model
        self.sampler = ElasticSampler(
            batches.num_items, batches.batch_size, shuffle=batches.shuffle, seed=seed
        )
        self._optimizer = optimizer
        self._batches, self._others = batches, dict(state)
        self._training = TrainingState(model, optimizer, state, has_rng=True)
        self._gradients = Gradients(model.parameters())
        self._timeout_s, self._grace_s = timeout_s, grace_s
        self._endpoint = endpoint
        handle = _group.begin_alone(timeout_s)
        self._me = Member(
            number=endpoint.add("requests"),
            role=role,
            handle=handle,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        self._goodput = Goodput(time.monotonic())
        self._roster = Roster(epoch=0, members=(self._me,))
        self._commit = _group.Commit(0, ())
        self._is_evicting = self._has_failed = self._has_state = False
        self._before: Callable[[], None] | None = None
        self._events: list[tuple[str, int, int]] = []
        self._skip_steps_of(optimizer)
        self._watch = Watch(endpoint, self._me.number, _warn_of_store)

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
        return self._is_evicting or self._watch.notice_s() is not None

    @property
    def events(self) -> list[tuple[str, int, int]]:
        """Changes of the members so far: what happened, step, number of members."""
        return list(self._events)

    def evict(self) -> None:
        """Gives this member an eviction notice; it leaves at the next boundary."""
        self._is_evicting = True

    def steps(self, until: int) -> Iterator[Step]:
        """Steps of the job, until `until` steps are committed or this member leaves.

        Members join, leave and die between two steps. A step that failed because a
        member died comes again with the same items; `optimizer.step()` does nothing in
        the failed attempt.

        Args:
            until: number of committed steps at which the training ends, the same on all
                members.

        Raises:
            AbortedError: too few reliable members are alive.
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
            is_repeat = self._has_failed
            if self._has_failed:
                self._recover()
            else:
                self.sampler.commit()
                self._before = None
                self._goodput.commit(time.monotonic())
                self._watch.report(self._status)
        self._leave_finished_job()

    # ---- a step ----

    def _begin_step(self, *, is_repeat: bool) -> Step:
        if not self.sampler.is_assigned:
            self.sampler.assign([str(m.number) for m in self._roster.members])
        self._before = self._keep_small_state()
        self._has_failed = False
        self._gradients.begin(lambda _, flat: calls.all_reduce(flat, async_op=True))
        return Step(self, self.sampler.assignment, is_repeat=is_repeat)

    def _begin_batch(self, share: float, *, is_last: bool) -> None:
        self._gradients.begin_batch(share, is_last=is_last)

    def _read(self, indices: tuple[int, ...]) -> Any:
        return self._batches.read(indices)

    def _end_batches(self, step: int) -> None:
        failure = self._gradients.finish()
        try:
            if failure is not None:
                raise failure
            self._commit = _group.commit(
                step, len(self._watch.waiting()), is_leaving=self.evicting
            )
        except (ConfigError, InternalError):
            raise
        except AikidoError:
            self._has_failed = True
            for p in self.model.parameters():
                p.grad = None

    def _skip_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        step = optimizer.step

        @functools.wraps(step)
        def step_if_committed(_: Any, *args: Any, **options: Any) -> Any:
            return None if self._has_failed else step(*args, **options)

        # A method, because schedulers bind the function that they find.
        optimizer.step = types.MethodType(step_if_committed, optimizer)  # type: ignore[method-assign]

    def _keep_small_state(self) -> Callable[[], None]:
        """Function that restores the state that a failed step changes."""
        buffers = {n: b.detach().clone() for n, b in self.model.named_buffers()}
        others = {n: deepcopy(o.state_dict()) for n, o in self._others.items()}
        generator = torch.get_rng_state()
        # Schedulers keep the learning rate in the groups of the optimizer.
        groups = self._optimizer.param_groups
        options = [
            {k: deepcopy(v) for k, v in g.items() if k != "params"} for g in groups
        ]

        def restore() -> None:
            for group, values in zip(groups, options, strict=True):
                group.update(values)
            with torch.no_grad():
                for name, buffer in self.model.named_buffers():
                    buffer.copy_(buffers[name])
            for name, other in self._others.items():
                other.load_state_dict(others[name])
            torch.set_rng_state(generator)

        return restore

    # ---- changes of the members ----

    def _pass_boundary(self) -> bool:
        """Admits and dismisses members; returns True if this member has left."""
        commit, self._commit = self._commit, _group.Commit(0, ())
        if not commit.num_waiting and not commit.leaving:
            return False
        try:
            roster = self._next_roster(commit)
        except (ConfigError, InternalError):
            raise
        except AikidoError:
            self._recover()
            return False
        if roster.find(self._me.number) is None:
            self._note("left")
            self.close()
            return True
        self._enter_or_recover(roster)
        return False

    def _next_roster(self, commit: _group.Commit) -> Roster:
        members = self._roster.members
        leader = self._roster.leader
        text = None
        if leader == self._me:
            leaving = {members[rank].number for rank in commit.leaving}
            joins = self._watch.waiting()[: commit.num_waiting]
            roster = self._roster.changed(
                self._endpoint.add("epoch"), without=leaving, joins=joins
            )
            roster = self._endpoint.follow(self._roster, roster)
            for member in joins:
                self._endpoint.admit(member, roster)
            text = roster.encode()
        return Roster.decode(_group.share_text(text, members.index(leader)))

    def _enter_or_recover(self, roster: Roster) -> None:
        try:
            self._enter(roster)
        except (ConfigError, InternalError):
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
        _group.connect(roster, self._timeout_s)
        steps = _group.compare_steps(self.sampler.step, has_state=self._has_state)
        newest = max(steps)
        if newest < 0:
            raise AbortedError(
                "elastic: no member has the state of the job any more; start it again "
                "from its last checkpoint."
            )
        donors = [rank for rank, step in enumerate(steps) if step == newest]
        behind = [rank for rank, step in enumerate(steps) if step != newest]
        rank = roster.members.index(self._me)
        sources = {r: donors[i % len(donors)] for i, r in enumerate(behind)}
        if rank in sources:
            self._load(_group.receive(sources[rank]))
        elif targets := [r for r, source in sources.items() if source == rank]:
            _group.send(self._training.take(self._notes), targets)
        if self.sampler.is_assigned:
            self.sampler.lose([str(number) for number in lost])
        self._note("members")

    def _notes(self) -> dict[str, Any]:
        return {"sampler": self.sampler.state_dict()}

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
        self._before = None
        self._has_state = True

    def _recover(self) -> None:
        """Goes on with the survivors of a death, at the begin of the failed step."""
        if self._before is not None:
            self._before()
        end = time.monotonic() + self._timeout_s
        while True:
            roster = agree(
                self._endpoint,
                self._roster,
                self._me,
                self._lost_numbers,
                grace_s=self._grace_s,
                timeout_s=self._timeout_s,
            )
            if roster.find(self._me.number) is None:
                raise AbortedError(
                    f"elastic: member {self.name} was silent for more than "
                    f"{self._grace_s:g} s, so the other members went on without it; "
                    "start the process again to join anew."
                )
            try:
                self._enter(roster)
                return
            except (ConfigError, InternalError):
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
            stage=1,  # each member has the whole state
            now_s=time.monotonic(),
            wall_s=time.time(),
        ).encode()

    def _leave_finished_job(self) -> None:
        if self._roster.leader == self._me:
            self._endpoint.set("ended", str(self.sampler.step))
        self.close()

    def close(self) -> None:
        """Ends the session's thread and removes its hooks from the model."""
        self._watch.close()
        self._gradients.close()


def _warn_of_store(text: str) -> None:
    warnings.warn(
        f"{text} The training goes on, but no process can join, and the survivors of a "
        "death cannot agree.",
        stacklevel=1,
    )
