# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Detection of pauses in the transfer of a message, and their reasons, from its chunks.

A link writes chunks in the order in which it picks them, and picks some chunks early.
So a message pauses from the time when one of its chunks is written until its next chunk
is picked, and all chunks that were picked in between are written.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from aikido_torch.trace.record._spans import Kind, Span, SpanOutcome

__all__ = ["Pause", "pauses_of"]

# An idle link writes one chunk right after the other. Shorter gaps are its own
# overhead, unless another chunk was written in the gap.
_LEAST_NS = 500_000


class Pause(NamedTuple):
    """A time in which no chunk of an incomplete message was written.

    Attributes:
        message: span of the message.
        begin_ns: end of the chunk before.
        end_ns: time when the message could continue, or was cancelled.
        by: the chunk of highest priority that was sent meanwhile; None if none was more
            urgent, and none on its link was overdue.
    """

    message: Span
    begin_ns: int
    end_ns: int
    by: Span | None

    @property
    def reason(self) -> str:
        """Reason as a text; equal for pauses of one kind."""
        if self.by is None:
            return "paused, the link took no more"
        if self.by.priority < self.message.priority:
            return f"paused for what was overdue, priority {self.by.priority}"
        return f"paused for priority {self.by.priority}"


def pauses_of(spans: Iterable[Span]) -> list[Pause]:
    """The pauses of the messages of one rank, sorted by begin. Pure."""
    messages: defaultdict[tuple[int, ...], list[Span]] = defaultdict(list)
    chunks = []
    for span in spans:
        if span.kind == Kind.SEND:
            messages[_key(span)].append(span)
        elif span.kind == Kind.SEND_CHUNK:
            chunks.append(span)
    chunks.sort(key=lambda chunk: (chunk.begin_ns, chunk.offset))
    of_message: defaultdict[Span, list[int]] = defaultdict(list)
    for i, chunk in enumerate(chunks):
        for message in messages[_key(chunk)]:
            if _is_of(chunk, message):
                of_message[message].append(i)
                break
    begins = [chunk.begin_ns for chunk in chunks]
    found = []
    for message, own in of_message.items():
        for before, after in _neighbours(message, [chunks[i] for i in own]):
            end_ns = message.end_ns if after is None else after.begin_ns
            first = bisect_right(begins, before.begin_ns)
            others = chunks[first : bisect_left(begins, end_ns)]
            ends = [c.end_ns for c in others if _link(c) == _link(message)]
            if after is not None:
                end_ns = max([end_ns, *ends])
            if end_ns <= before.end_ns:
                continue
            by = _overtaker(message, others)
            is_on_link = by is not None and _link(by) == _link(message)
            if is_on_link or end_ns - before.end_ns >= _LEAST_NS:
                found.append(Pause(message, before.end_ns, end_ns, by))
    return sorted(found, key=lambda pause: pause.begin_ns)


def _link(span: Span) -> tuple[int, int]:
    return span.name, span.peer


def _key(span: Span) -> tuple[int, ...]:
    return span.name, span.peer, span.number, span.shard, span.detail


def _is_of(chunk: Span, message: Span) -> bool:
    is_part = message.offset <= chunk.offset < message.offset + message.bytes
    return is_part and message.begin_ns <= chunk.begin_ns <= message.end_ns


def _neighbours(message: Span, own: list[Span]) -> list[tuple[Span, Span | None]]:
    """Consecutive chunks of a message; None as second: it was cancelled."""
    # If offsets do not match, the recorder had no room for a chunk in between.
    found: list[tuple[Span, Span | None]] = [
        (before, after)
        for before, after in pairwise(own)
        if before.offset + before.bytes == after.offset
    ]
    is_cut = own[-1].offset + own[-1].bytes < message.offset + message.bytes
    if message.outcome == SpanOutcome.CANCELLED and is_cut:
        found.append((own[-1], None))
    return found


def _overtaker(message: Span, others: list[Span]) -> Span | None:
    """The most important chunk that was sent meanwhile. All links of a rank share one
    uplink.
    """
    link = _link(message)
    urgent = [c for c in others if c.priority > message.priority]
    if urgent:
        return max(urgent, key=lambda c: (_link(c) == link, c.priority))
    overdue = [c for c in others if _link(c) == link and c.priority < message.priority]
    return max(overdue, key=lambda c: c.priority, default=None)
