# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Log lines about the members of a group, in a form that programs can read.

A line has words and then `name=value` pairs. The same values are in `extra` of the
record, under `aikido`, for handlers that write JSON. A thread writes the lines once a
second, from the counters of the group and the event log of the process.
"""

import atexit
import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch.distributed as dist

from aikido_torch import _C
from aikido_torch._backend import (
    backend_of,
    recorder_of_process,
    with_bucket_backends,
)
from aikido_torch._rows import MemberEvent
from aikido_torch.errors import AikidoError

__all__ = ["Brake", "EventLog", "Seen", "event_names", "log_events", "news", "news_of"]

_LOOK_S = 1.0
_FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 600.0

# Log lines by the kind of the event (csrc/trace/event_log.h): level, event name for
# dashboards, text, and further values.
_MEMBER_NEWS = {
    "late": (
        logging.WARNING,
        "suspect",
        "it holds up the others, its shards are to go to them",
        {"cause": "late"},
    ),
    "silent": (
        logging.WARNING,
        "suspect",
        "nothing comes from it: it is stopped, its machine is down, or the link is cut",
        {"cause": "silent"},
    ),
    "shards_moved": (
        logging.WARNING,
        "takeover",
        "others own the shards that were its own",
        {"what": "shards"},
    ),
    "shards_back": (
        logging.INFO,
        "handback",
        "it owns shards again",
        {"what": "shards"},
    ),
    "stood_in": (
        logging.WARNING,
        "takeover",
        "a backup contributes in its place",
        {"what": "data"},
    ),
    "took_over": (
        logging.INFO,
        "takeover",
        "another rank computes micro-batches of it",
        {"what": "micro_batches"},
    ),
    "out": (logging.WARNING, "member_out", "the others go on without it", {}),
    "back": (logging.INFO, "member_back", "takes part again", {}),
    "lost": (logging.ERROR, "death", "", {}),
}
# Connection events of a bucket group are not logged, because the model's group has the
# same members and logs them.
_OF_CONNECTIONS = ("silent", "lost")
# Event names for dashboards, by the kind of the event.
event_names = {kind: name for kind, (_, name, _, _) in _MEMBER_NEWS.items()}


@dataclass(frozen=True)
class Seen:
    """Values of a group's counters at one moment.

    Attributes:
        epoch: epoch of the members; the counters begin anew with each.
        standing: state of this rank: "member", "returning", "refused" or "ended".
        skipped: calls that ended without this rank's contribution.
        failed: calls that failed.
    """

    epoch: int = 1
    standing: str = "member"
    skipped: int = 0
    failed: int = 0


@dataclass(frozen=True)
class _News:
    level: int
    event: str  # name for dashboards
    text: str
    values: dict[str, int | str]

    def line(self) -> str:
        pairs = " ".join(f"{name}={value}" for name, value in self.values.items())
        return f"aikido {self.event}: {self.text}; {pairs}"


def news(rank: int, before: Seen, after: Seen) -> list[_News]:
    """Log lines about the changes between two moments. Pure."""
    found = []
    if before.epoch != after.epoch:
        before = Seen(epoch=after.epoch)

    def tell(level: int, event: str, text: str, **values: int | str) -> None:
        found.append(_News(level, event, text, {"rank": rank, **values}))

    if before.standing != after.standing:
        level = logging.INFO if after.standing == "member" else logging.WARNING
        text = "of this rank in calls that may skip"
        tell(level, "standing", text, standing=after.standing)
    if more := after.skipped - before.skipped:
        text = "calls ended without this rank"
        tell(logging.INFO, "skipped", text, calls=more, total=after.skipped)
    if more := after.failed - before.failed:
        tell(logging.ERROR, "failed", "calls failed", calls=more, total=after.failed)
    return found


def news_of(event: MemberEvent) -> _News:
    """Log line about an event of a member. Pure."""
    level, name, text, more = _MEMBER_NEWS[event["kind"]]
    values: dict[str, int | str] = {"rank": event["rank"], "member": event["member"]}
    values |= more
    if event["by"]:
        values["by"] = ",".join(map(str, event["by"]))
    return _News(level, name, event["text"] or text, values)


@dataclass
class _Repeats:
    told_at: float
    pause_s: float = _FIRST_PAUSE_S
    times: int = 0  # repetitions since then
    last: _News | None = None


class Brake:
    """Rate limit for events of a member that repeat.

    The first event is logged at once. Repetitions within a pause are logged when the
    pause is over, in one line with their number (`times`); then the pause is doubled.
    After a pause without repetitions, the limit starts from the beginning. Pure: `now`
    in seconds.
    """

    def __init__(self) -> None:
        self._repeats: dict[tuple[int | str | None, ...], _Repeats] = {}

    def add(self, told: _News, now: float) -> list[_News]:
        """Adds an event; returns the lines to log at once."""
        values = told.values
        key = (told.event, values["member"], values.get("cause"), values.get("what"))
        repeats = self._repeats.get(key)
        if repeats is None:
            self._repeats[key] = _Repeats(told_at=now)
            return [_times(told, 1)]
        repeats.times += 1
        repeats.last = told
        return []

    def due(self, now: float, *, is_end: bool = False) -> list[_News]:
        """The lines about repetitions that are due now; all of them at the end."""
        told = []
        for key, repeats in list(self._repeats.items()):
            if not is_end and now - repeats.told_at < repeats.pause_s:
                continue
            if repeats.last is None:
                del self._repeats[key]
                continue
            told.append(_times(repeats.last, repeats.times))
            pause_s = min(2 * repeats.pause_s, _LONGEST_PAUSE_S)
            self._repeats[key] = _Repeats(told_at=now, pause_s=pause_s)
        return told


def _times(told: _News, times: int) -> _News:
    return replace(told, values={**told.values, "times": times})


def is_of(event: MemberEvent, group: str, names: Collection[str]) -> bool:
    """True if `group` logs the event; `names` are its bucket groups."""
    if event["group"] == group:
        return True
    return event["group"] in names and event["kind"] not in _OF_CONNECTIONS


def look(backend: _C.AikidoBackend) -> Seen:
    """Reads the counters of a group."""
    counters = backend.counters
    return Seen(
        epoch=backend.epoch,
        standing=backend.standing,
        skipped=counters["skipped_own"],
        failed=counters["failures"],
    )


def log_events(
    *,
    logger: logging.Logger | None = None,
    group: dist.ProcessGroup | None = None,
    look_s: float = _LOOK_S,
) -> "EventLog":
    """Logs events of the members of a group, from now on.

    | event | meaning |
    | --- | --- |
    | suspect | a member is late with its shards, or silent: `cause` |
    | takeover | others own its shards, compute its micro-batches, or a backup
      contributes for it: `what`, `by` |
    | handback | it owns shards again |
    | member_out, member_back | calls that may skip exclude it, or include it again |
    | death | its connection is lost, and it has not said goodbye |
    | skipped, failed | calls of this rank: `calls`, and `total` until now |
    | standing | state of this rank in calls that may skip |

    All events have `rank`, this rank, and the first five have `member`. Repeated events
    of a member are combined in one line with `times`, the number since the line before.
    Ranks are those at the time of the event.

    Args:
        logger: logger to write to; None is the logger "aikido".
        group: an aikido group; None is the default group.
        look_s: seconds between two polls of the thread.

    Returns:
        A handle that ends it. It ends by itself with the group, after logging all
        earlier events.

    Raises:
        ConfigError: there is no aikido group.
    """
    backend_of(group)
    return EventLog(logger or logging.getLogger("aikido"), group, look_s)


class EventLog:
    """Handle of `log_events`."""

    def __init__(
        self, logger: logging.Logger, group: dist.ProcessGroup | None, look_s: float
    ) -> None:
        self._logger, self._group, self._look_s = logger, group, look_s
        self._backend = backend_of(group)
        self._name = self._backend.group_name
        # By name: this group, and the bucket groups of its models.
        self._before: dict[str, Seen] = {}
        self._before = {b.group_name: look(b) for b in self._backends()}
        self._recorder = recorder_of_process()
        past = self._recorder.events(0)
        self._last = past[-1]["number"] if past else 0
        self._brake = Brake()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="aikido-log", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def _backends(self) -> list[_C.AikidoBackend]:
        return with_bucket_backends(self._backend)

    def close(self) -> None:
        """Logs the latest events, and ends. Idempotent."""
        atexit.unregister(self.close)
        self._ended.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._ended.wait(self._look_s)
            try:
                is_over |= backend_of(self._group) is not self._backend
            except AikidoError:
                is_over = True
            # Events of a group that has ended are still available.
            told = []
            for backend in self._backends():
                after, name = look(backend), backend.group_name
                before = self._before.get(name, Seen(epoch=after.epoch))
                told += news(backend.place[0], before, after)
                self._before[name] = after
            now = time.monotonic()
            for each in self._member_news(now, is_end=is_over) + told:
                extra = {"aikido": {"event": each.event, **each.values}}
                self._logger.log(each.level, each.line(), extra=extra)
        del self._backend

    def _member_news(self, now: float, *, is_end: bool) -> list[_News]:
        """Lines about all events until now."""
        told = []
        for event in self._recorder.events(self._last):
            self._last = event["number"]
            if not is_of(event, self._name, self._before):
                continue
            each = news_of(event)
            # A death cannot repeat, so it is never delayed.
            told += [each] if each.event == "death" else self._brake.add(each, now)
        return told + self._brake.due(now, is_end=is_end)
