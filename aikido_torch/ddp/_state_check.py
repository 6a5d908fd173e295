# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Compares the state of all ranks every so many steps, and repairs one that differs.

Note [how a divergence ends]
A replayed step cannot be checked on one rank alone. So every rank takes a digest of its
parameters and its optimizer before the same step, and sends it to all others. Nobody
waits for a digest.

    step s      first hook: a thread begins to read the parameters, which stay as they
                are until the backward ends; then the digest is sent
    catch_up    the others' digests have come; a rank that differs from the majority
                asks one of its ranks for the state that it has one step later
    catch_up    of the next step: the state is awaited and put in place

The rank that waits has taken part in all calls before that step, so the other one gets
there without it: they cannot wait for each other.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aikido_torch.ddp._backward import after_backward
from aikido_torch.ddp._digest import Digesting, StateDigest
from aikido_torch.ddp._exchange import Copied, Exchange, Fetch
from aikido_torch.ddp._report import Check
from aikido_torch.ddp._votes import Verdict, Votes
from aikido_torch.errors import RanksDifferError

__all__ = ["StateCheck"]

_log = logging.getLogger("aikido")
_Notes = dict[int, dict[str, int]]  # parts of digests, by step
# Steps from a digest until a rank that differs has the state of another one: the
# digests come after one, the answer after one more, on a slow link after some more.
_REPAIR_STEPS = 5


class StateCheck:
    """One rank's part of the comparison. For the thread that trains.

    Args:
        module: without its DistributedDataParallel.
        optimizer: of its parameters.
        exchange: gives what carries the digests; nothing is compared without one.
        place: rank and size of the group.
        checking: `check` of register, and the steps after which a divergence is gone.
        first_step: no digest is taken before that step.
        reasons: what the loop is known to do besides; may grow.

    Attributes:
        is_on: anything is compared.
        raises: a difference is an error.
        num_repairs: states that this rank has copied because it differed.
        failure: what is raised at the next boundary, or was raised at the last one.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        exchange: Callable[[], Exchange | None],
        *,
        place: tuple[int, int],
        checking: tuple[Check, int],
        first_step: int,
        reasons: Sequence[str],
    ) -> None:
        self._names = {id(p): name for name, p in module.named_parameters()}
        self._optimizer = optimizer
        check, every = checking
        self._exchange_of = exchange
        self.is_on, self.raises = check != "off", check == "error"
        self._own, size = place
        self._interval = every - _REPAIR_STEPS if every > 2 * _REPAIR_STEPS else every
        self._first_step = first_step
        self._reasons = reasons
        self._votes = Votes(self._own, size)
        self._digesting: Digesting | None = None
        self._digests: dict[int, StateDigest] = {}  # own ones, the last two
        self._num_replayed = 0  # since
        self._equal_at = 0  # the last digest that was as the others'
        self._verdict: Verdict | None = None  # this rank differs
        self._fetch: Fetch | None = None
        self.failure: RanksDifferError | None = None
        self._repaired_at = -1
        self._num_asked = 0
        self.num_repairs = 0

    @property
    def _exchange(self) -> Exchange | None:
        return self._exchange_of() if self.is_on else None

    # ---- digests ----

    def is_due(self, step: int) -> bool:
        """Whether a digest of the state before `step` is taken; equal on all ranks."""
        if step % self._interval != 0 or step < self._first_step:
            return False
        return self._exchange is not None

    def steps_before_digest(self, step: int) -> int:
        """From `step` on, before the next one that may be due."""
        return -step % self._interval

    def begin(self, step: int) -> None:
        """In the first hook of the backward of `step`: begins to read, if it is due."""
        if self.is_due(step):
            self._digesting = Digesting(step, self._names, self._optimizer)

    def on_last_hook(self) -> None:
        """In the last hook of that backward: at its end the digest goes to all others.

        That is before anything changes the parameters.
        """
        if self._digesting is not None:
            after_backward(self._send)

    def _send(self) -> None:
        digesting, self._digesting = self._digesting, None
        exchange = self._exchange
        if digesting is None or exchange is None:
            return
        digest = digesting.result()
        self._keep(digest)
        self._votes.add(self._own, digest.step, digest.total)
        exchange.tell_digest(digest.step, digest.total)

    def _keep(self, digest: StateDigest) -> None:
        self._digests = {s: self._digests[s] for s in sorted(self._digests)[-1:]}
        self._digests[digest.step] = digest

    def digest_now(self, step: int) -> StateDigest:
        """Of the state after `step` steps; blocks for it."""
        self.finish()
        digest = Digesting(step, self._names, self._optimizer).result()
        self._keep(digest)
        return digest

    def on_replay(self, step: int) -> None:
        """Before a replay of `step`."""
        self._num_replayed += 1
        self.begin(step)
        self._send()

    def finish(self) -> None:
        """Waits for the thread that reads parameters, which are about to change."""
        if self._digesting is not None:
            self._digesting.finish()

    def digest_notes(self) -> _Notes:
        """The parts of the own digests by step, for a rank that copies the state."""
        return {step: dict(d.parts) for step, d in self._digests.items()}

    # ---- verdicts ----

    @property
    def has_work(self) -> bool:
        """Whether `at_boundary` has anything to do besides digests that have come."""
        return bool(
            self._votes.are_open or self._fetch or self._verdict or self.failure
        )

    def at_boundary(
        self,
        place: tuple[int, int],
        candidates: Callable[[], Sequence[int]],
        timeout_s: float,
        *,
        most_steps: int,
        look: Callable[[], None],
        adopt: Callable[[Copied], dict[str, Any] | None],
        read: Callable[[Copied], dict[str, Any]],
    ) -> int | None:
        """Between two steps. Returns the rank whose state was copied, if one was.

        Waits only for a state that was asked for a step before.

        Args:
            place: steps and calls that this rank has behind it.
            candidates: other ranks, the best to copy from first.
            timeout_s: until a state begins to come.
            most_steps: a state with more is not put in place: of several models in one
                loop none may go ahead alone.
            look: called while this rank waits.
            adopt: puts a state in place and returns its parts; None: it is older than
                what this rank has.
            read: returns the parts of a state and leaves this rank's as it is.

        Raises:
            RanksDifferError: this rank differs, and that is an error.
        """
        exchange = self._exchange
        if exchange is None:
            return None
        self._look(exchange)
        source = None
        if self._fetch is not None and place[0] > self._fetch.step:
            copied = self._fetch.result(timeout_s, look, own_place=place)
            exchange.leave(self._fetch)
            if self.raises:
                self._fail(exchange, None if copied is None else read(copied)["notes"])
            elif copied is None:
                self._note_silence(self._fetch.rank, timeout_s)
            elif copied.step <= most_steps and (parts := adopt(copied)) is not None:
                source = copied.rank
                self._note_repair(copied, parts["notes"])
            self._fetch = None
        if self._verdict is not None and self._fetch is None:
            donors = [rank for rank in candidates() if rank in self._verdict.agreed]
            if donors:
                donor = donors[self._num_asked % len(donors)]
                self._num_asked += 1
                self._fetch = exchange.ask(donor, place[0], is_patient=True)
            elif self.raises:
                self._fail(exchange, None)
        return source

    def _look(self, exchange: Exchange) -> None:
        if self.failure is not None:
            raise self.failure
        for rank, step, digest in exchange.take_digests():
            self._votes.add(rank, step, digest)
        for verdict in self._votes.decide():
            if self._own not in verdict.differing:
                self._num_replayed, self._equal_at = 0, verdict.step
            elif verdict.step > self._repaired_at:
                self._verdict = verdict

    def _fail(self, exchange: Exchange, notes: _Notes | None) -> None:
        """Prepares the error, which is raised one step later: all have heard of it."""
        verdict = self._verdict
        assert verdict is not None
        first = self.first_difference(verdict, notes or {})
        self.failure = RanksDifferError(
            self.sentence(verdict, first),
            rank=self._own,
            step=verdict.step,
            tensor=first,
        )
        exchange.tell_failure(self.failure, timeout_s=0.0)
        self._verdict = None

    def first_difference(self, verdict: Verdict, notes: _Notes) -> str | None:
        """Between the own digest and the notes of a rank; None: not known."""
        theirs, own = notes.get(verdict.step), self._digests.get(verdict.step)
        if theirs is None or own is None:
            return None
        return own.first_difference(StateDigest(verdict.step, theirs))

    def _note_silence(self, rank: int, timeout_s: float) -> None:
        assert self._verdict is not None
        _log.warning(
            "rank %d differs from others since step %d, but rank %d has given no state "
            "within %.1f s; another one is asked in the next step.",
            self._own,
            self._verdict.step,
            rank,
            timeout_s,
        )

    def _note_repair(self, copied: Copied, notes: _Notes) -> None:
        verdict = self._verdict
        assert verdict is not None
        _log.warning(
            "%s The state of rank %d was copied at step %d.",
            self.sentence(verdict, self.first_difference(verdict, notes)),
            copied.rank,
            copied.step,
        )
        self._verdict, self._repaired_at = None, copied.step
        self._num_replayed, self._equal_at = 0, copied.step
        self.num_repairs += 1

    def sentence(self, verdict: Verdict, first: str | None) -> str:
        """What is wrong, with the first difference and the likely reason."""
        agreed = ", ".join(map(str, verdict.agreed))
        where = "" if first is None else f" The first difference is in {first}."
        text = (
            f"rank {self._own} had another state than rank {agreed} before step "
            f"{verdict.step}.{where} Likely reason: {self._reason()}"
        )
        exchange = self._exchange
        return text if exchange is None else exchange.say_both(text)

    def _reason(self) -> str:
        found = "; ".join(self._reasons)
        reasons = f" ({found})" if found else ""
        if self._num_replayed == 0:
            return (
                f"since step {self._equal_at} this rank has replayed nothing, so its "
                "loop changes parameters, gradients or options in another way than the "
                f"others{reasons}, or its processor computes with other rounding."
            )
        return (
            f"since step {self._equal_at} this rank has replayed "
            f"{self._num_replayed} steps, and its loop does something in a step that "
            f"aikido_torch.ddp.register was not told of{reasons}."
        )
