# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Return of a rank that was excluded, or that has another state than the others.

Note [a rank that is refused]
The others exclude a rank that does not answer. Then it returns by itself, with two
exceptions: the results that it lacks are not kept any more, or it alone has received a
result and the others have decided on another one. It cannot take part again with such a
state. Its next call fails, and it copies the state of another rank:

```text
call       fails; `rescue` lets the backward end, and this step is lost
catch_up   copies a state, and is taken in again
every      the others give states here before they make calls of their own
```

A rank copies if `register` knows its whole state, and if no other model is trained in
the same loop. Otherwise the call raises the reason.
"""

import logging
import time
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

from aikido_torch._backend import option_of
from aikido_torch.errors import PeerLostError, RetryLaterError
from aikido_torch.recovery._catch_up import CatchUp
from aikido_torch.recovery._catch_up_policy import StateCopy
from aikido_torch.recovery._end_check import EndCheck
from aikido_torch.recovery._state import TrainingState
from aikido_torch.recovery._state_check import StateCheck
from aikido_torch.recovery._state_transfer import Copied, StateTransfer, check_reachable
from aikido_torch.recovery._together import stepped_together

__all__ = [
    "Returning",
    "fetch_from_any",
    "may_return",
    "repair_by_copy",
    "rescue",
    "return_by_copy",
    "wait_for_excluded",
]

_log = logging.getLogger("aikido")

# Number of copies after which a rank that is refused each time gives up.
_MOST_RETURNS = 8
# Number of ranks that are asked for their state before the steps are replayed instead.
_MOST_ASKED = 2
_LOOK_S = 0.001
# Seconds without an answer after which the others wait for this rank in a call.
_SURE_S = 2.0
_WAITED_FOR = (
    "catch_up: rank {rank} was left out while it was late and needs the state of "
    "another rank, but other ranks wait for it in a call on the model's group, where "
    "they give no state. Make this call where handle.every(n) is true, or use "
    "handle.barrier(group); or give straggler.log_bytes more room."
)


class Returning(Protocol):
    """Interface of the handle of such a rank."""

    _backend: Any
    _calls: Any
    _copy: StateCopy | None
    _exchange: StateTransfer | None
    _end_check: EndCheck | None
    _quiet: Any
    _book: Any
    _has_lost_step: bool
    _state: TrainingState
    _state_check: StateCheck

    @property
    def steps(self) -> int:
        """Number of optimizer steps that this rank has done."""

    def _candidates(self) -> Sequence[int]:
        """Ranks to copy from, the best first."""

    def _ask(self, rank: int, step: int, timeout_s: float) -> Copied | None:
        """The state of `rank`, if it arrives in time."""

    def _adopt(self, copied: Copied) -> dict[str, Any] | None:
        """Applies a state and returns its parts; None if it is too old."""

    def _refuse(self) -> None:
        """Receives messages, and refuses requests for the state."""

    def _must_copy(self) -> bool:
        """True if this rank was refused, and may copy a state."""

    def _look(self) -> None:
        """Receives messages."""

    def _answer(self) -> None:
        """Sends the state to ranks that have asked for it."""

    def catch_up(self) -> CatchUp:
        """Brings this rank up to date."""


def may_return(handle: Returning) -> bool:
    """True if a copied state is all that this rank needs after a refusal."""
    if handle._copy is None or handle._exchange is None:
        return False
    handles: list[Any] = [*stepped_together.handles()]
    others = [other for other in handles if other is not handle]
    return all(_is_over(other) for other in others)


def _is_over(handle: Any) -> bool:
    return handle._end_check is None or handle._end_check.is_behind(handle)


def rescue(known: "weakref.ref[Returning]", error: BaseException) -> bool:
    """Lets the backward of a failed call end, if the rank can go on; any thread."""
    handle = known()
    if handle is None:
        return False
    if handle._calls.has_failed:  # the end of the backward raises the reason
        return True
    own, _ = handle._backend.place
    is_refused = isinstance(error, PeerLostError) and error.rank == own
    if not (is_refused and may_return(handle)):
        return False
    if not handle._has_lost_step:
        _log.warning(
            "The step of this rank is lost, and catch_up() copies the state of another "
            "rank: %s",
            error,
        )
    handle._has_lost_step = handle._state_check.is_void = True
    handle._quiet.set_alarm(True)
    return True


def wait_for_excluded(handle: Returning) -> None:
    """Gives states until all living ranks are in the view, at most for the heartbeat's
    time-out. A call of the loop would wait for those ranks, too.
    """
    backend = handle._backend
    own, size = backend.place
    deadline = time.monotonic() + int(option_of(backend, "heartbeat_timeout_ms")) / 1e3
    while time.monotonic() < deadline:
        if handle._must_copy():
            handle.catch_up()
        here = {own, *backend.members(), *backend.gone}
        if len(here) == size:
            return
        handle._look()
        handle._answer()
        time.sleep(_LOOK_S)


def repair_by_copy(handle: Returning) -> int | None:
    """Calls `StateCheck.at_boundary` for this handle."""
    return handle._state_check.at_boundary(
        (handle.steps, handle._backend.num_calls),
        handle._candidates,
        (handle._copy or StateCopy()).timeout_s(handle._book.own_steps_s),
        most_steps=handle._calls.goal,
        look=handle._refuse,
        adopt=handle._adopt,
        read=lambda copied: handle._state.read(copied.snapshot),
    )


def fetch_from_any(handle: Returning, timeout_s: float) -> Copied | None:
    """The state of a rank that is ahead; None if no rank has sent it in time."""
    for rank in handle._candidates()[:_MOST_ASKED]:
        asked_at = time.monotonic()
        copied = handle._ask(rank, handle.steps, timeout_s)
        if copied is not None or time.monotonic() - asked_at >= timeout_s:
            # A rank that does not answer is blocked, as the other ranks may be too.
            return copied
    return None


def return_by_copy(handle: Returning) -> int:
    """Copies states until this rank is in the view, with the state of a member.

    Returns:
        The rank whose state was copied.

    Raises:
        RetryLaterError: no rank sent its state within the time-out of calls.
        PeerLostError: no rank is left, or this rank is refused again and again.
    """
    wait_s = (handle._copy or StateCopy()).timeout_s(handle._book.own_steps_s)
    deadline = time.monotonic() + handle._backend.call_timeout.total_seconds()
    num_copies = 0
    while time.monotonic() < deadline:
        copied = None
        begin, num_waiting = time.monotonic(), handle._calls.num_waiting
        for rank in handle._candidates():
            # The last step is invalid, so a state of the step before is useful too.
            left_s = max(0.0, deadline - time.monotonic())
            copied = handle._ask(rank, handle.steps - 1, min(wait_s, left_s))
            if copied is not None:
                break
        if copied is None:
            check_reachable(handle._backend)
            is_sure = time.monotonic() - begin >= _SURE_S
            if is_sure and num_waiting > 0 and handle._calls.num_waiting == num_waiting:
                rank, _ = handle._backend.place
                handle._calls.refuse_waiting(_WAITED_FOR.format(rank=rank))
            wait_s = min(2 * wait_s, 60.0)
            continue
        if handle._adopt(copied) is None:
            continue
        handle._has_lost_step = False
        handle._state_check.on_return(copied.step)
        while handle._backend.standing == "returning":
            handle._refuse()
            time.sleep(_LOOK_S)
            if time.monotonic() > deadline:
                break
        if handle._backend.standing == "member":
            return copied.rank
        num_copies += 1
        if num_copies == _MOST_RETURNS:
            raise PeerLostError(
                f"catch_up: this rank has copied the state of another one "
                f"{num_copies} times and was refused each time: the others produce "
                "results faster than this rank can copy, or a connection of it is "
                "broken; see straggler.log_bytes, or reconfigure."
            )
    raise RetryLaterError(
        "catch_up: this rank was left out while it was late, and no rank gave its "
        f"state within {handle._backend.call_timeout.total_seconds():.0f} s; the "
        "others answer in their own catch_up: are they still training, or do they "
        "wait for this rank in a strict call?"
    )
