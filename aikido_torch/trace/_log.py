# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Log lines about what happens to the members of a group, as a program reads them.

A line has words and then `name=value` pairs; the same values are in `extra` of the
record, under `aikido`, for handlers that write JSON. A thread writes them, once a
second, out of the counters of the group and the journal of the process.
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

# What befalls a member, by the kind of the event (csrc/trace/journal.h): level, event
# as dashboards count it, text, and what tells it from others of that name.
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
        "a backup gives in its place",
        {"what": "data"},
    ),
    "out": (logging.WARNING, "member_out", "the others go on without it", {}),
    "back": (logging.INFO, "member_back", "takes part again", {}),
    "lost": (logging.ERROR, "death", "", {}),
}
# Of these a group of buckets tells nothing: the model's group has the same members.
_OF_CONNECTIONS = ("silent", "lost")
# As dashboards count them, by the kind of the event.
event_names = {kind: name for kind, (_, name, _, _) in _MEMBER_NEWS.items()}


@dataclass(frozen=True)
class Seen:
    """What a look at the counters of a group shows.

    Attributes:
        epoch: of the members; the counters begin anew with each.
        standing: of this rank: "member", "returning", "refused" or "ended".
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
    event: str  # as dashboards count it
    text: str
    values: dict[str, int | str]

    def line(self) -> str:
        pairs = " ".join(f"{name}={value}" for name, value in self.values.items())
        return f"aikido {self.event}: {self.text}; {pairs}"


def news(rank: int, before: Seen, after: Seen) -> list[_News]:
    """What is to be told of the time between two looks. Pure."""
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
    """What is to be told of something that befell a member. Pure."""
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
    times: int = 0  # since then
    last: _News | None = None


class Brake:
    """Tells what befalls a member again and again in a line now and then.

    The first time is told at once. What follows within a pause is told when it is over,
    in one line that says how often it was (`times`); then the pause is twice as long.
    After a pause without any it is as it was at first. Pure: `now` in seconds.
    """

    def __init__(self) -> None:
        self._repeats: dict[tuple[int | str | None, ...], _Repeats] = {}

    def add(self, told: _News, now: float) -> list[_News]:
        """What is to be told at once."""
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
        """What is to be told now of what was held back; all of it at the end."""
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
    """Whether to tell of `event` for `group`, whose buckets go by the other names."""
    if event["group"] == group:
        return True
    return event["group"] in names and event["kind"] not in _OF_CONNECTIONS


def look(backend: _C.AikidoBackend) -> Seen:
    """A look at the counters of a group."""
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
    """Logs what happens to the members of a group, from now on.

    | event | when |
    | --- | --- |
    | suspect | a member is late with its shards, or silent: `cause` |
    | takeover | others own its shards, or a backup gives in its place: `what`, `by` |
    | handback | it owns shards again |
    | member_out, member_back | calls that may skip go on without it, with it again |
    | death | its connection is gone, and it has not said goodbye |
    | skipped, failed | calls of this rank: `calls`, and `total` until now |
    | standing | of this rank in calls that may skip |

    All have `rank`, this one, and the first five `member`. What befalls a member again
    and again is a line now and then, with `times`: how often since the line before.
    Ranks are those of that time.

    Args:
        logger: to write to; None is the one called "aikido".
        group: an aikido group; None is the default group.
        look_s: how often the thread looks.

    Returns:
        What ends it. It ends by itself with the group, and has told what came before.

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
        self._backend = backend_of(group)
        self._name = self._backend.group_name
        # Of each group, by its name: that one, and those of the buckets of models.
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
        """Tells what is new, and ends. Idempotent."""
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
            # Those of a group that has ended are still there.
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
        """Of all that has happened until now."""
        told = []
        for event in self._recorder.events(self._last):
            self._last = event["number"]
            if not is_of(event, self._name, self._before):
                continue
            each = news_of(event)
            # Nobody dies twice.
            told += [each] if each.event == "death" else self._brake.add(each, now)
        return told + self._brake.due(now, is_end=is_end)
