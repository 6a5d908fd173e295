# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Comparison of the states of all ranks after the last step of a training.

Note [the last steps]
The steps after the last digest of `_state_check.py` would stay unchecked, and a rank
that differs has no next step in which it could ask for a state. So each rank computes a
digest after its last step, sends it to all others and waits for their digests. A rank
that differs copies the state of a rank that agrees with the majority, and sends its new
digest. The other ranks stay until they have received that digest, and send their states
on request.

```text
tell      send the own digest to all ranks
wait      for the digests of all ranks that have not left
repair    if this rank differs: ask, copy, tell again
serve     if another rank differs: send the state until that rank has told again
```

One deadline covers all of it.
"""

import logging
import sys
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from aikido_torch._end_calls import call_at_end
from aikido_torch.errors import RanksDifferError
from aikido_torch.recovery._state import TrainingState
from aikido_torch.recovery._state_check import StateCheck
from aikido_torch.recovery._state_transfer import Copied, StateTransfer
from aikido_torch.recovery._votes import Ends, VoteResult

__all__ = ["EndCheck", "Ending", "end_check_of"]

_log = logging.getLogger("aikido")
_LOOK_S = 0.001
_TELL_S = 1.0  # Time to send an error to all other ranks.
# Seconds without progress after which a call of another rank is in vain.
_IN_VAIN_S = 2.0


class Ending(Protocol):
    """Interface of the handle whose training ends."""

    _backend: Any
    _calls: Any
    _state: TrainingState

    @property
    def steps(self) -> int:
        """Number of optimizer steps that this rank has done."""

    def close(self, timeout_s: float | None = None) -> None:
        """Catches up and runs the EndCheck of this handle."""

    def _look(self) -> None:
        """Receives messages; raises a failure that another rank has reported."""

    def _answer(self) -> None:
        """Sends the state to ranks that have asked for it."""

    def _refuse(self) -> None:
        """Receives messages, and refuses requests for the state."""

    def _adopt(self, copied: Copied) -> dict[str, Any] | None:
        """Applies a state and returns its parts; None if it is too old."""


class CallsInVain:
    """Calls of others behind the last step of this rank that do not end. Pure."""

    def __init__(self) -> None:
        self._last = (0, 0)
        self._since = 0.0

    def are_seen(self, called: int, committed: int, now: float) -> bool:
        """Whether such a call has made no progress for `_IN_VAIN_S`.

        Args:
            called: calls that another rank has made and this rank has not.
            committed: those among them that have a result.
            now: in seconds; never less than before.
        """
        if (called, committed) != self._last or called <= committed:
            self._last, self._since = (called, committed), now
        return now - self._since >= _IN_VAIN_S


class EndCheck:
    """One rank's part of the last comparison. For the training thread only.

    Args:
        exchange: sends and receives the digests.
        place: rank and size of the group.
        check: computes digests and writes the sentences.
    """

    def __init__(
        self, exchange: StateTransfer, place: tuple[int, int], check: StateCheck
    ) -> None:
        self._exchange, self._check = exchange, check
        self._own, self._size = place
        self._number = 0
        self._compared_at = -1

    def run(self, handle: Ending, timeout_s: float) -> None:
        """Compares the states of the ranks after the last step.

        Returns when all ranks have told equal states, when the others have left, or
        after `timeout_s` seconds.

        Raises:
            RanksDifferError: a rank differs, and `check` is "error".
        """
        if self.is_behind(handle):
            return
        self._compared_at = handle.steps
        if not self._check.is_on:
            return
        ends, self._number = Ends(self._own, self._size), self._number + 1
        deadline = time.monotonic() + timeout_s
        self._tell(handle, ends)

        if others := self._wait_for_all(handle, ends, deadline):
            self._refuse_more_steps(handle, others)
        elif missing := ends.awaited(handle._backend.gone):
            _log.info(
                "rank %d waited %.1f s for the end of the training on rank %s, whose "
                "last state is compared with none here.",
                self._own,
                timeout_s,
                _listed(missing),
            )
        most, ahead = ends.ahead()
        if handle.steps < most:
            self._report(
                self._exchange.say_both(
                    f"rank {self._own} ends its training after {handle.steps} steps, "
                    f"but rank {_listed(ahead)} after {most}: call catch_up() until it "
                    "returns 0, and count the steps by it."
                ),
                handle.steps,
                None,
            )
        verdict = ends.verdict(handle._backend.gone)
        if verdict is not None and self._own in verdict.differing:
            self._repair(handle, ends, verdict, deadline)
        elif verdict is not None and verdict.differing:
            self._stay(handle, ends, deadline)

    def is_behind(self, handle: Ending) -> bool:
        """True if the states were compared and no step was done since."""
        return self._compared_at == handle.steps

    @property
    def has_failed(self) -> bool:
        """True if a difference has been raised as an error already."""
        failures = self._check.failure, self._exchange.failure
        return any(f is not None and f.__traceback__ is not None for f in failures)

    def abstain(self) -> None:
        """Tells the other ranks not to wait, because this rank compares nothing."""
        self._number += 1
        self._exchange.tell_end(self._number, 0, "")

    def _tell(self, handle: Ending, ends: Ends) -> None:
        digest = self._check.digest_now(handle.steps).total
        ends.add(self._own, handle.steps, digest)
        self._exchange.tell_end(self._number, handle.steps, digest)

    def _wait(
        self,
        handle: Ending,
        ends: Ends,
        deadline: float,
        is_over: Callable[[], bool],
    ) -> None:
        while True:
            handle._look()
            handle._answer()
            for rank, step, digest in self._exchange.take_ends(self._number):
                ends.add(rank, step, digest)
            if is_over() or time.monotonic() > deadline:
                return
            time.sleep(_LOOK_S)

    def _wait_for_all(self, handle: Ending, ends: Ends, deadline: float) -> list[int]:
        """Returns the ranks that go on while this rank waits for them."""
        backend, in_vain = handle._backend, CallsInVain()
        goes_on = False

        def is_over() -> bool:
            nonlocal goes_on
            if not ends.awaited(backend.gone):
                return True
            called, committed = backend.called_ahead, backend.committed_ahead
            goes_on = in_vain.are_seen(called, committed, time.monotonic())
            return goes_on

        self._wait(handle, ends, deadline, is_over)
        return ends.awaited(backend.gone) if goes_on else []

    def _refuse_more_steps(self, handle: Ending, others: list[int]) -> None:
        """Note [a rank that goes on]"""
        text = self._exchange.say_both(
            f"rank {self._own} ends its training after {handle.steps} steps, but rank "
            f"{_listed(others)} goes on and waits for others in the next step: give "
            "the loop the same number of steps on all ranks, counted by what "
            "catch_up() returns, and make one backward that reduces gradients in each."
        )
        # Most ranks may go on without this one, once it has left.
        if 2 * len(others) < self._size:
            handle._calls.fail_on(others, text)
        self._report(text, handle.steps, None)

    def _stay(self, handle: Ending, ends: Ends, deadline: float) -> None:
        """Serves ranks that differ until they agree or have left."""

        def differing() -> list[int]:
            verdict = ends.verdict(())
            return [] if verdict is None else list(verdict.differing)

        def is_over() -> bool:
            return not set(differing()) - set(handle._backend.gone)

        self._wait(handle, ends, deadline, is_over)
        if left := differing():
            self._report(
                self._exchange.say_both(
                    f"rank {_listed(left)} ended its training with another state than "
                    f"rank {self._own} after {handle.steps} steps, and copied none."
                ),
                handle.steps,
                None,
            )

    def _repair(
        self, handle: Ending, ends: Ends, verdict: VoteResult, deadline: float
    ) -> None:
        first = None
        for rank in verdict.agreed:
            fetch = self._exchange.ask(rank, handle.steps - 1)
            left_s = max(0.0, deadline - time.monotonic())
            place = handle.steps, handle._backend.num_calls
            copied = fetch.result(left_s, handle._refuse, own_place=place)
            self._exchange.leave(fetch)
            if copied is None:
                continue
            notes = handle._state.read(copied.snapshot)["notes"]
            first = self._check.first_difference(verdict, notes)
            if self._check.raises or handle._adopt(copied) is None:
                break
            text = self._check.sentence(verdict, first)
            _log.warning("%s The state of rank %d was copied.", text, copied.rank)
            self._check.num_repairs += 1
            self._tell(handle, ends)
            return
        text = self._check.sentence(verdict, first)
        if not self._check.raises:
            text += " No state could be copied, so it has that state still."
        self._report(text, verdict.step, first)

    def _report(self, text: str, step: int, tensor: str | None) -> None:
        if not self._check.raises:
            _log.warning("%s", text)
            return
        failure = RanksDifferError(text, rank=self._own, step=step, tensor=tensor)
        self._exchange.tell_failure(failure, timeout_s=_TELL_S)
        raise failure


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def end_check_of(
    handle: Ending, exchange: StateTransfer | None, state_check: StateCheck
) -> EndCheck | None:
    """Makes the check of `handle`; its group closes the handle before it ends.

    `destroy_process_group` does that, unless an exception is being raised or an error
    of the check was raised before. The group keeps the check alive, but not the handle.

    Args:
        handle: the handle of a registered model.
        exchange: None if the policy never skips; then there is no check.
        state_check: computes digests and writes the sentences.
    """
    if exchange is None:
        return None
    check = EndCheck(exchange, handle._backend.place, state_check)
    known = weakref.ref(handle)

    def end(linger: timedelta) -> None:
        handle = known()
        is_raising = sys.exc_info()[0] is not None or check.has_failed
        if handle is None or is_raising:
            check.abstain()
            return
        try:
            handle.close(linger.total_seconds())
        except RanksDifferError:
            raise
        except Exception as error:
            check.abstain()
            _log.warning(
                "The states of the ranks were not compared at the end of the training: "
                "%s: %s",
                type(error).__name__,
                error,
            )

    call_at_end(handle._backend, "states", end)
    return check
