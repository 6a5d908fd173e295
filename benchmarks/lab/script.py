# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Faults in a lab and their times, as text.

```text
at 120 ms late member 2 for 300 ms       its program sleeps at its next pause()
at 120 ms stop member 2 for 300 ms       SIGSTOP, then SIGCONT
at 2 s kill member 1                     SIGKILL
at 500 ms cut host 0 for 1 s             all frames are lost both ways
at 3 s cut host 0                        until it is healed
at 4 s heal host 0
at 1 s rate host 3 up 20 mbit for 2 s    then as it was when the ranks started
at 1 s rate host 3 up none down 5 mbit   none: not limited
at 1 s flow host 3 to host 4 for 800 ms  one TCP stream, as fast as possible
```

One event per line, or separated by semicolons; # begins a comment. This file is pure;
ranks.py has the clock.
"""

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MEMBER_VERBS = ("late", "stop", "kill")
HOST_VERBS = ("cut", "heal", "rate", "flow")
_TOKEN = re.compile(r"\d+(?:\.\d+)?|[a-z]+|\S")
_SECONDS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of a script."""

    at_s: float
    verb: str  # one of MEMBER_VERBS and HOST_VERBS
    target: int  # a member (its rank) or a host
    for_s: float | None = None
    to: int | None = None  # for flow: the receiving host
    rates: tuple[tuple[str, float | None], ...] = ()  # for rate: fields of Link

    @property
    def end_s(self) -> float:
        return self.at_s + (self.for_s or 0.0)

    def __str__(self) -> str:
        kind = "member" if self.verb in MEMBER_VERBS else "host"
        words = [f"at {_time(self.at_s)} {self.verb} {kind} {self.target}"]
        if self.to is not None:
            words.append(f"to host {self.to}")
        for name, mbit in self.rates:
            rate = "none" if mbit is None else f"{mbit:g} mbit"
            words.append(f"{name.removesuffix('_mbit')} {rate}")
        if self.for_s is not None:
            words.append(f"for {_time(self.for_s)}")
        return " ".join(words)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.10g} ms"


# ---- text --------------------------------------------------------------------------


class _Line:
    """The words of one line, read from left to right."""

    def __init__(self, text: str):
        self._text = " ".join(text.split())
        self._words = _TOKEN.findall(text)

    def fail(self, wanted: str) -> ValueError:
        found = f"'{self._words[0]}'" if self._words else "the end"
        return ValueError(f"In '{self._text}': {wanted} is wanted, {found} found.")

    def has(self, word: str) -> bool:
        if self._words[:1] != [word]:
            return False
        self._words.pop(0)
        return True

    def word(self, *wanted: str) -> str:
        for word in wanted:
            if self.has(word):
                return word
        raise self.fail(" or ".join(f"'{word}'" for word in wanted))

    def number(self, what: str) -> float:
        if not self._words or not self._words[0][0].isdigit():
            raise self.fail(what)
        return float(self._words.pop(0))

    def index(self, kind: str) -> int:
        self.word(kind)
        number = self.number(f"the number of a {kind}")
        if not number.is_integer():
            raise ValueError(
                f"In '{self._text}': {kind} {number:g} is no whole number."
            )
        return int(number)

    def time(self) -> float:
        number = self.number("a time")
        return number * _SECONDS[self.word(*_SECONDS)]

    def duration(self, *, is_needed: bool) -> float | None:
        if not is_needed and not (self._words and self._words[0] == "for"):
            return None
        self.word("for")
        seconds = self.time()
        if seconds <= 0:
            raise ValueError(f"In '{self._text}': it must last longer than 0 s.")
        return seconds

    def rate(self) -> float | None:
        if self.has("none"):
            return None
        number = self.number("a rate such as '20 mbit', or 'none',")
        self.word("mbit")
        return number

    def end(self) -> None:
        if self._words:
            raise self.fail("the end")


def _parse_line(text: str) -> Event:
    line = _Line(text)
    line.word("at")
    at_s = line.time()
    verb = line.word(*MEMBER_VERBS, *HOST_VERBS)
    target = line.index("member" if verb in MEMBER_VERBS else "host")
    to, rates = None, []
    if verb == "flow":
        line.word("to")
        to = line.index("host")
    if verb == "rate":
        for way in ("up", "down"):
            if line.has(way):
                rates.append((f"{way}_mbit", line.rate()))
        if not rates:
            raise line.fail("'up' or 'down'")
    for_s = None
    if verb not in ("kill", "heal"):
        for_s = line.duration(is_needed=verb in ("late", "stop", "flow"))
    line.end()
    return Event(
        at_s=at_s, verb=verb, target=target, for_s=for_s, to=to, rates=tuple(rates)
    )


def parse(text: str) -> tuple[Event, ...]:
    """The events of a script in order of time. Raises ValueError with the line."""
    lines = [line.partition("#")[0] for line in text.splitlines()]
    parts = [part for line in lines for part in line.split(";") if part.strip()]
    events = tuple(sorted(map(_parse_line, parts), key=lambda event: event.at_s))
    _check_overlaps(events)
    return events


def _check_overlaps(events: Iterable[Event]) -> None:
    """Refuses overlapping events of one kind, because the end of one would end both."""
    last: dict[tuple[str, int], Event] = {}
    for event in events:
        if event.verb in ("late", "flow"):
            continue
        before = last.get((event.verb, event.target))
        if before is not None and before.for_s and event.at_s < before.end_s:
            raise ValueError(f"'{event}' begins before '{before}' has ended.")
        last[event.verb, event.target] = event


def check_targets(events: Iterable[Event], *, num_members: int, num_hosts: int) -> None:
    """Raises ValueError for an event that names a missing member or host."""
    for event in events:
        is_member = event.verb in MEMBER_VERBS
        kind, count = ("member", num_members) if is_member else ("host", num_hosts)
        for number in (event.target, event.to or 0):
            if number >= count:
                raise ValueError(
                    f"'{event}': there is no {kind} {number}; they are 0 to {count - 1}"
                )


# ---- time --------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """An immediate action; an event with a duration has a second step for its end."""

    at_s: float
    what: str  # one of: stop, continue, kill, cut, heal, rate, restore, flow
    event: Event


_ENDS = {"stop": "continue", "cut": "heal", "rate": "restore"}


class Timeline:
    """The steps by time. `late` is not among them, because the ranks do that."""

    def __init__(self, events: Iterable[Event]):
        steps = []
        for event in events:
            if event.verb == "late":
                continue
            steps.append(Step(event.at_s, event.verb, event))
            if event.for_s is not None and event.verb in _ENDS:
                steps.append(Step(event.end_s, _ENDS[event.verb], event))
        # At equal times, ends come before begins.
        self._steps = sorted(
            steps, key=lambda step: (step.at_s, step.what not in _ENDS.values())
        )

    @property
    def next_s(self) -> float | None:
        """Time of the next step; None if all are done."""
        return self._steps[0].at_s if self._steps else None

    def due(self, now_s: float) -> list[Step]:
        """The steps up to now, each returned once."""
        count = sum(step.at_s <= now_s for step in self._steps)
        steps, self._steps = self._steps[:count], self._steps[count:]
        return steps


# ---- random events ----------------------------------------------------------------


def on_off_flows(
    source: int,
    target: int,
    *,
    seed: int,
    until_s: float,
    mean_on_s: float = 1.0,
    mean_off_s: float = 1.0,
) -> list[Event]:
    """Cross traffic: streams and pauses of exponential length, determined by the
    seed.
    """
    draw: Callable[[float], float] = random.Random(seed).expovariate
    events, now_s = [], 0.0
    while True:
        now_s += draw(1 / mean_off_s)
        if now_s >= until_s:
            return events
        length_s = min(max(draw(1 / mean_on_s), 0.001), until_s - now_s)
        events.append(
            Event(at_s=now_s, verb="flow", target=source, for_s=length_s, to=target)
        )
        now_s += length_s
