# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Log lines about the members of an elastic job, in the form of `trace.log_events`."""

import logging

__all__ = ["log_event"]

_log = logging.getLogger("aikido")
# Level and text by the event.
_NEWS = {
    "founded": (logging.INFO, "the job begins"),
    "members": (logging.INFO, "the members have changed"),
    "left": (logging.INFO, "this member has left after a notice"),
    "ended": (logging.WARNING, "no reliable member stays, so the job ends here"),
    "rolled back": (logging.WARNING, "the last committed step is undone and repeated"),
}


def log_event(what: str, *, member: str, step: int, members: int) -> None:
    """Logs an event of a job to the logger `aikido`.

    The values are in `extra` of the record too, under `aikido`, for handlers that write
    JSON.

    Args:
        what: "founded", "members", "left", "ended" or "rolled back".
        member: name of the member that logs.
        step: number of committed steps.
        members: number of members after the event.
    """
    level, text = _NEWS[what]
    event = f"elastic_{what.replace(' ', '_')}"
    values = {"member": member, "step": step, "members": members}
    pairs = " ".join(f"{name}={value}" for name, value in values.items())
    extra = {"aikido": {"event": event, **values}}
    _log.log(level, f"aikido {event}: {text}; {pairs}", extra=extra)
