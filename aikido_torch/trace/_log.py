# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Log lines about what happens to the members of a group, as a program reads them.

A line has words and then `name=value` pairs; the same values are in `extra` of the
record, under `aikido`, for handlers that write JSON. Each is written once, when it is
seen: a thread looks at the counters of the group once a second.
"""

import atexit
import logging
import threading
from dataclasses import dataclass

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import backend_of
from aikido_torch.errors import AikidoError

__all__ = ["EventLog", "Seen", "log_events", "news"]

_LOOK_S = 1.0


@dataclass(frozen=True)
class Seen:
    """What a look at a group shows.

    Attributes:
        members: who takes part in calls that may skip.
        standing: of this rank: "member", "returning" or "refused".
        skipped: calls that ended without this rank's contribution.
        given_bytes: that this rank gave in the place of others.
        failed: calls that failed.
    """

    members: tuple[int, ...] = ()
    standing: str = "member"
    skipped: int = 0
    given_bytes: int = 0
    failed: int = 0


@dataclass(frozen=True)
class _News:
    level: int
    event: str  # as dashboards count it
    text: str
    values: dict[str, int | str]


def news(rank: int, before: Seen, after: Seen) -> list[_News]:
    """What is to be told of the time between two looks. Pure."""
    found = []

    def tell(level: int, event: str, text: str, **values: int | str) -> None:
        found.append(_News(level, event, text, {"rank": rank, **values}))

    for gone in sorted({*before.members} - {*after.members}):
        tell(logging.WARNING, "member_out", "the others go on without it", member=gone)
    for back in sorted({*after.members} - {*before.members}):
        tell(logging.INFO, "member_back", "takes part again", member=back)
    if before.standing != after.standing:
        level = logging.INFO if after.standing == "member" else logging.WARNING
        text = "of this rank in calls that may skip"
        tell(level, "standing", text, standing=after.standing)
    if more := after.skipped - before.skipped:
        text = "calls ended without this rank"
        tell(logging.INFO, "skipped", text, calls=more, total=after.skipped)
    if more := after.given_bytes - before.given_bytes:
        text = "this rank stood in for others"
        tell(logging.INFO, "stood_in", text, bytes=more)
    if more := after.failed - before.failed:
        tell(logging.ERROR, "failed", "calls failed", calls=more, total=after.failed)
    return found


def look(backend: _C.AikidoBackend) -> Seen:
    """A look at a group, which waits for a turn of its progress thread."""
    counters = backend.counters
    return Seen(
        members=tuple(backend.members()),
        standing=backend.standing,
        skipped=counters["skipped_own"],
        given_bytes=counters["given_bytes"],
        failed=counters["failures"],
    )


def log_events(
    *,
    logger: logging.Logger | None = None,
    group: dist.ProcessGroup | None = None,
    look_s: float = _LOOK_S,
) -> "EventLog":
    """Logs from now on who is left out or back, skips, stand-ins and failures.

    Args:
        logger: to write to; None is the one called "aikido".
        group: an aikido group; None is the default group.
        look_s: how often the thread looks.

    Returns:
        What ends it. It ends by itself with the group.

    Raises:
        ConfigError: there is no aikido group.
    """
    backend_of(group)
    return EventLog(logger or logging.getLogger("aikido"), group, look_s)


class EventLog:
    """What `log_events` returns."""

    def __init__(
        self, logger: logging.Logger, group: dist.ProcessGroup | None, look_s: float
    ) -> None:
        self._logger, self._group, self._look_s = logger, group, look_s
        self._before = look(backend_of(group))
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="aikido-log", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Tells what is new, and ends. Idempotent."""
        atexit.unregister(self.close)
        self._ended.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(self._look_s)
            try:
                backend = backend_of(self._group)
                after = look(backend)
            except AikidoError:  # the group has ended
                return
            for each in news(backend.place[0], self._before, after):
                pairs = " ".join(f"{name}={v}" for name, v in each.values.items())
                extra = {"aikido": {"event": each.event, **each.values}}
                line = f"aikido {each.event}: {each.text}; {pairs}"
                self._logger.log(each.level, line, extra=extra)
            self._before = after
