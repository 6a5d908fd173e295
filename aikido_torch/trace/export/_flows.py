# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Arrows from a send to its receive, in the format of Chrome's traces. Pure."""

from collections import defaultdict
from typing import Any, NamedTuple

from aikido_torch.trace.analyze._stages import label_of
from aikido_torch.trace.record._dump import Dump
from aikido_torch.trace.record._spans import Kind, Span

__all__ = ["Flows", "Place"]

# Value of transport::FrameKind for a point-to-point message.
_MESSAGE = 7
_Key = tuple[object, ...]


class Place(NamedTuple):
    """Place of an event in the picture: its rank, its lane, and its begin."""

    rank: int
    thread: int
    us: float


class Flows:
    """Pairs of events on two ranks: messages, and transfers of pipelines."""

    def __init__(self) -> None:
        self._sent: dict[_Key, Place] = {}
        self._received: defaultdict[_Key, list[Place]] = defaultdict(list)

    def add(self, dump: Dump, span: Span, place: Place) -> None:
        """Adds an event; most events are no end of an arrow."""
        match span.kind:
            case Kind.SEND if span.detail == _MESSAGE:
                key = dump.groups()[span.name], dump.rank, span.peer, span.number
                self._sent[key] = place
            case Kind.RECEIVE_CHUNK if span.detail == _MESSAGE and span.offset == 0:
                key = dump.groups()[span.name], span.peer, dump.rank, span.number
                self._received[key].append(place)
            case Kind.SECTION if span.name < len(dump.names):
                self._add_section(dump.names[span.name], span.step, place)

    def _add_section(self, name: str, step: int, place: Place) -> None:
        label = label_of(name)
        if label is None:
            return
        verb, _, what = label.kind.partition("_")
        if verb == "send":
            self._sent[what, step, label.stage, label.micro_batch] = place
        elif verb == "receive":
            sender = label.stage + (1 if what == "gradient" else -1)
            self._received[what, step, sender, label.micro_batch].append(place)

    def events(self) -> list[dict[str, Any]]:
        """Two events for each arrow with two known ends."""
        found = []
        number = 0
        for key, sent in self._sent.items():
            for received in self._received.get(key, ()):
                number += 1
                for phase, at in (("s", sent), ("f", received)):
                    event: dict[str, Any] = {
                        "ph": phase, "id": number, "pid": at.rank, "tid": at.thread,
                        "ts": at.us, "name": "message", "cat": "flow",
                    }  # fmt: skip
                    if phase == "f":
                        event["bp"] = "e"
                    found.append(event)
        return found
