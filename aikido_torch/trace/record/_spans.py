# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Spans in Python; csrc/trace/span.h defines their times."""

import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Kind", "Span", "SpanOutcome", "pack", "unpack"]

_LAYOUT = struct.Struct("<qqqQQQqiiHHBBBB")
SPAN_BYTES = _LAYOUT.size


class Kind(IntEnum):
    """Kind of activity that a span records."""

    OPERATION = 1
    SEND = 2
    SEND_CHUNK = 3
    RECEIVE_CHUNK = 4
    SECTION = 5
    STOP = 6
    HOLE = 7


class SpanOutcome(IntEnum):
    """Way in which the activity ended."""

    COMPLETE = 0
    SKIPPED = 1
    FAILED = 2
    CANCELLED = 3
    OPEN = 4  # a call in progress when the spans were taken


class Span(NamedTuple):
    """An activity of one rank between two times."""

    begin_ns: int
    first_ns: int
    end_ns: int
    bytes: int
    number: int
    offset: int
    step: int
    peer: int
    priority: int
    name: int
    shard: int
    kind: int
    detail: int
    outcome: int
    thread: int


def unpack(raw: bytes) -> list[Span]:
    """The spans in `raw`, a multiple of SPAN_BYTES bytes."""
    return list(map(Span._make, _LAYOUT.iter_unpack(raw)))


def pack(spans: list[Span]) -> bytes:
    """The inverse of `unpack`."""
    return b"".join(_LAYOUT.pack(*span) for span in spans)
