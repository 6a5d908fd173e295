# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Number of next steps that a handle may leave to C++; see csrc/bind/quiet_steps.h."""

from typing import TYPE_CHECKING

from aikido_torch.ddp._step_audit import AUDIT_PERIOD
from aikido_torch.recovery._together import stepped_together

if TYPE_CHECKING:
    from aikido_torch.ddp._handle import Handle

__all__ = ["leave_quiet_steps", "take_quiet_steps"]


def leave_quiet_steps(handle: "Handle") -> None:
    """At the end of a hook: makes the next steps quiet in which Python has nothing to
    do.
    """
    if not _may_be_quiet(handle):
        return
    step = handle._steps
    num_steps = min(
        -step % AUDIT_PERIOD,
        handle._audit.steps_before_look(step),
        handle._state_check.steps_before_digest(step),
    )
    if num_steps > 0:
        steps = range(step, step + num_steps)
        awaited = handle._exchange.awaited if handle._exchange else []
        handle._quiet.allow(
            steps,
            handle._policy,
            len(handle._buckets),
            awaited,
            handle._audit.quiet_period(step),
        )


def _may_be_quiet(handle: "Handle") -> bool:
    """True if no option of `register` and no received message needs Python in a
    step. Steps of a loop that has not called catch_up() yet need it: they are counted
    for a warning.
    """
    exchange = handle._exchange
    return (
        handle._calls.has_own_group
        and handle._calls.losses.has_caught_up
        and not (handle._policies.excludes or handle._carrying.is_on)
        and handle._backups.sampler is None
        and handle._is_laid_out()
        and handle._batches.is_plain
        and not handle._has_lost_step
        and not handle._state_check.has_work
        and (exchange is None or not exchange.has_news)
        and len(stepped_together.handles()) < 2
    )


def take_quiet_steps(handle: "Handle") -> None:
    """Counts the quiet steps since the last call; `StepBook` records them later."""
    steps, has_begun = handle._quiet.take()
    if not steps and not has_begun:
        return
    handle._calls.on_quiet(handle._steps, len(steps), has_begun=has_begun)
    handle._book.end_quiet(handle._steps, steps)
    handle._steps += len(steps)
    if has_begun:
        handle._audit.on_quiet_top()
