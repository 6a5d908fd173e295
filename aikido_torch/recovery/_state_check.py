# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Periodic comparison of the states of all ranks, and repair of a rank that differs.

Note [how a divergence ends]
A replayed step cannot be checked on one rank alone. So every rank computes a digest of
its parameters and its optimizer before the same step, and sends it to all others. No
rank waits for a digest.

```text
step s      first hook: a thread begins to read the parameters, which do not change
            until the backward ends; then the digest is sent
catch_up    the digests of the others have arrived; a rank that differs from the
            majority asks one rank of the majority for its next state
catch_up    of the next step: this rank waits for the state and applies it
```

The waiting rank has taken part in all calls before that step. So the rank that was
asked reaches the step without the waiting rank, and the two cannot wait for each other.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aikido_torch.errors import RanksDifferError
from aikido_torch.recovery._backward import after_backward
from aikido_torch.recovery._digest import Digesting, StateDigest
from aikido_torch.recovery._report import Check
from aikido_torch.recovery._state_transfer import Copied, Fetch, StateTransfer
from aikido_torch.recovery._votes import VoteResult, Votes

__all__ = ["StateCheck"]

_log = logging.getLogger("aikido")
_Notes = dict[int, dict[str, int]]  # digests of the parts of a state, by step
# Steps from a digest until a rank that differs has the state of another rank: the
# digests arrive after one step, the answer one step later, or some more on a slow link.
_REPAIR_STEPS = 5


@dataclass
class _LastEqual:
    """The last digest of this rank that equalled that of the majority."""

    step: int
    num_replayed: int = 0  # steps that were replayed since


class StateCheck:
    """One rank's part of the comparison. For the training thread only.

    Args:
        module: the model without its DistributedDataParallel.
        optimizer: optimizer of its parameters.
        exchange: returns the exchange that carries digests; None: nothing is compared.
        place: rank and size of the group.
        checking: `check` of register, and the number of steps within which a divergence
            is repaired.
        first_step: the first step before which a digest is computed.
        reasons: known differences between the loop and `register`; the list may grow.

    Attributes:
        is_on: True if states are compared.
        raises: True if a difference is an error.
        num_repairs: number of states that this rank has copied because it differed.
        failure: the error that the next boundary raises, or the last one has raised.
        is_void: True until this rank has copied a state, because the others have
            refused it. Its digests are not sent.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        exchange: Callable[[], StateTransfer | None],
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
        self._digests: dict[int, StateDigest] = {}  # the last two digests of this rank
        self._last_equal = _LastEqual(step=0)
        self._verdict: VoteResult | None = None  # set if this rank differs
        self._fetch: Fetch | None = None
        self.failure: RanksDifferError | None = None
        self.is_void = False
        self._repaired_at = -1
        self._num_asked = 0
        self.num_repairs = 0

    @property
    def _exchange(self) -> StateTransfer | None:
        return self._exchange_of() if self.is_on else None

    # ---- digests ----

    def is_due(self, step: int) -> bool:
        """True if the state before `step` is compared; equal on all ranks."""
        if step % self._interval != 0 or step < self._first_step:
            return False
        return self._exchange is not None

    def steps_before_digest(self, step: int) -> int:
        """Number of steps from `step` on before the next step that may need a
        digest.
        """
        return -step % self._interval

    def begin(self, step: int) -> None:
        """In the first hook of the backward of `step`: begins the digest if it is
        due.
        """
        if self.is_due(step):
            self._digesting = Digesting(step, self._names, self._optimizer)

    def on_last_hook(self) -> None:
        """In the last hook of that backward: sends the digest when the backward ends.

        Nothing changes the parameters before that.
        """
        if self._digesting is not None:
            after_backward(self._send)

    def _send(self) -> None:
        digesting, self._digesting = self._digesting, None
        exchange = self._exchange
        if digesting is None or exchange is None:
            return
        if self.is_void:
            digesting.finish()
            return
        digest = digesting.result()
        self._keep(digest)
        self._votes.add(self._own, digest.step, digest.total)
        exchange.tell_digest(digest.step, digest.total)

    def _keep(self, digest: StateDigest) -> None:
        self._digests = {s: self._digests[s] for s in sorted(self._digests)[-1:]}
        self._digests[digest.step] = digest

    def digest_now(self, step: int) -> StateDigest:
        """Digest of the state after `step` steps; blocks until it is computed."""
        self.finish()
        digest = Digesting(step, self._names, self._optimizer).result()
        self._keep(digest)
        return digest

    def on_replay(self, step: int) -> None:
        """Called before a replay of `step`."""
        self._last_equal.num_replayed += 1
        self.begin(step)
        self._send()

    def finish(self) -> None:
        """Waits for the thread that reads parameters, which are about to change."""
        if self._digesting is not None:
            self._digesting.finish()

    def on_return(self, step: int) -> None:
        """Called after a refused rank has copied a state of `step` steps."""
        if self._fetch is not None and (exchange := self._exchange) is not None:
            exchange.leave(self._fetch)
        self._fetch = None
        self.is_void = False
        self._note_equal(step)

    def _note_equal(self, step: int) -> None:
        self._verdict, self._repaired_at = None, step
        self._last_equal = _LastEqual(step)

    def digest_notes(self) -> _Notes:
        """The parts of this rank's digests by step, for a rank that copies the
        state.
        """
        return {step: dict(d.parts) for step, d in self._digests.items()}

    # ---- verdicts ----

    @property
    def has_work(self) -> bool:
        """True if `at_boundary` has work besides digests that have arrived."""
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
        """Compares and repairs, between two steps. Waits only for a state asked for
        before.

        Args:
            place: steps and calls that this rank has done.
            candidates: returns the other ranks, the best to copy from first.
            timeout_s: seconds until a state must begin to arrive.
            most_steps: a state after more steps is not applied, because none of several
                models in one loop may go ahead alone.
            look: called repeatedly while this rank waits.
            adopt: applies a state and returns its parts; None if it is too old.
            read: returns the parts of a state without applying them.

        Returns:
            The rank whose state was copied; None if there was no copy.

        Raises:
            RanksDifferError: this rank differs, and `check` is "error".
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

    def _look(self, exchange: StateTransfer) -> None:
        if self.failure is not None:
            raise self.failure
        for rank, step, digest in exchange.take_digests():
            self._votes.add(rank, step, digest)
        for verdict in self._votes.decide():
            if self._own not in verdict.differing:
                self._last_equal = _LastEqual(verdict.step)
            elif verdict.step > self._repaired_at:
                self._verdict = verdict

    def _fail(self, exchange: StateTransfer, notes: _Notes | None) -> None:
        """Prepares the error. It is raised one step later, when all ranks have received
        it.
        """
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

    def first_difference(self, verdict: VoteResult, notes: _Notes) -> str | None:
        """First difference between the own digest and that of another rank; None:
        unknown.
        """
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
        self._note_equal(copied.step)
        self.num_repairs += 1

    def sentence(self, verdict: VoteResult, first: str | None) -> str:
        """Text of the difference, with its first place and the likely reason."""
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
        since, num_replayed = self._last_equal.step, self._last_equal.num_replayed
        if num_replayed == 0:
            return (
                f"since step {since} this rank has replayed nothing, so its "
                "loop changes parameters, gradients or options in another way than the "
                f"others{reasons}, or its processor computes with other rounding."
            )
        return (
            f"since step {since} this rank has replayed "
            f"{num_replayed} steps, and its loop does something in a step that "
            f"aikido_torch.ddp.register was not told of{reasons}."
        )
