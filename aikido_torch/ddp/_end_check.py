# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Compares the states of all ranks after the last step of a training.

Note [the last steps]
The steps behind the last digest of `_state_check.py` would go unchecked, and a rank
that differs has no next step in which it could ask for a state. So each rank takes a
digest after its last step, sends it to all others and waits for theirs. A rank that
differs copies the state of one that agrees with the majority, and sends its digest
again. The others stay until they have that digest, and give their states meanwhile.

    tell      own digest to all
    wait      for the digests of all ranks that have not left
    repair    this rank differs: ask, copy, tell again
    serve     another rank differs: give the state until it has told again

There is one deadline for all of it.
"""

import logging
import sys
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from aikido_torch.ddp._exchange import Copied, Exchange
from aikido_torch.ddp._state import TrainingState
from aikido_torch.ddp._state_check import StateCheck
from aikido_torch.ddp._votes import Ends, Verdict
from aikido_torch.errors import RanksDifferError

__all__ = ["EndCheck", "Ending", "end_check_of"]

_log = logging.getLogger("aikido")
_LOOK_S = 0.001
_TELL_S = 1.0  # until an error is on its way to all others


class Ending(Protocol):
    """The handle whose training ends."""

    _backend: Any
    _state: TrainingState

    @property
    def steps(self) -> int:
        """Behind this rank."""

    def close(self, timeout_s: float | None = None) -> None:
        """Catches up and runs its EndCheck."""

    def _look(self) -> None:
        """Takes in messages; raises the failure that another rank has told."""

    def _answer(self) -> None:
        """Gives its state to ranks that have asked for it."""

    def _refuse(self) -> None:
        """Takes in messages, and gives its state to nobody."""

    def _adopt(self, copied: Copied) -> dict[str, Any] | None:
        """Puts a state in place and returns its parts; None: it is too old."""


class EndCheck:
    """One rank's part of the last comparison. For the thread that trains.

    Args:
        exchange: carries the digests.
        place: rank and size of the group.
        check: takes digests and writes sentences.
    """

    def __init__(
        self, exchange: Exchange, place: tuple[int, int], check: StateCheck
    ) -> None:
        self._exchange, self._check = exchange, check
        self._own, self._size = place
        self._number = 0
        self._compared_at = -1

    def run(self, handle: Ending, timeout_s: float) -> None:
        """Returns when all ranks have told equal states, or are gone, or it is time.

        Raises:
            RanksDifferError: a rank differs, and that is an error.
        """
        if self.is_behind(handle):
            return
        self._compared_at = handle.steps
        if not self._check.is_on:
            return
        ends, self._number = Ends(self._own, self._size), self._number + 1
        deadline = time.monotonic() + timeout_s
        self._tell(handle, ends)

        def have_all_told() -> bool:
            return not ends.awaited(handle._backend.gone)

        self._wait(handle, ends, deadline, have_all_told)
        if missing := ends.awaited(handle._backend.gone):
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
        """Whether `handle` was closed, and has made no step since."""
        return self._compared_at == handle.steps

    @property
    def has_failed(self) -> bool:
        """A difference has been raised as an error already."""
        failures = self._check.failure, self._exchange.failure
        return any(f is not None and f.__traceback__ is not None for f in failures)

    def abstain(self) -> None:
        """Tells the others that this rank compares nothing: they need not wait."""
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

    def _stay(self, handle: Ending, ends: Ends, deadline: float) -> None:
        """Gives its state to those that differ until they do not, or have left."""

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
        self, handle: Ending, ends: Ends, verdict: Verdict, deadline: float
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
    handle: Ending, exchange: Exchange | None, state_check: StateCheck
) -> EndCheck | None:
    """Makes the check of `handle`, whose group closes the handle before it ends.

    That is in `destroy_process_group`, if no exception is on its way out and no error
    of the check was raised before. The group keeps the check alive, but not the handle.
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

    handle._backend.set_end_hook(end)
    return check
