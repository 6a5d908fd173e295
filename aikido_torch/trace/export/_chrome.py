# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Export of traces as JSON for Perfetto (ui.perfetto.dev) and Chrome's tracing page.

Format: "Trace Event Format", Google: complete events (ph X), and arrows from a send to
its receive (ph s and f). A rank is a process. Overlapping spans are spread over several
lanes, because events of one lane must nest.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aikido_torch.trace.analyze._pauses import Pause, pauses_of
from aikido_torch.trace.analyze._stages import label_of
from aikido_torch.trace.export._flows import Flows, Place
from aikido_torch.trace.export._kineto import Profile, profiler_events, read_profile
from aikido_torch.trace.record._dump import Dump, check_together, write_file
from aikido_torch.trace.record._spans import Kind, Span, SpanOutcome

__all__ = ["FRAMES", "events", "lanes", "write_chrome"]

# Values of transport::FrameKind for data.
FRAMES = {1: "contribution", 2: "result", 4: "data", 7: "message"}
# Low bits of the label of a micro-batch, with its number in the epoch.
_NUMBER_BITS = 32
_Event = dict[str, Any]


def lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Spreads spans over lanes without overlaps; each span goes to the first free
    lane.
    """
    packed: list[list[Span]] = []
    ends: list[int] = []
    for span in sorted(spans, key=lambda s: (s.begin_ns, -s.end_ns)):
        for i, end in enumerate(ends):
            if end <= span.begin_ns:
                packed[i].append(span)
                ends[i] = span.end_ns
                break
        else:
            packed.append([span])
            ends.append(span.end_ns)
    return packed


def write_chrome(
    path: str | Path,
    dumps: Iterable[Dump],
    *,
    profiles: Iterable[str | Path | Profile] = (),
) -> list[str]:
    """Writes the traces of all ranks into one file, by the clock of rank 0.

    Args:
        path: file to write.
        dumps: traces of ranks of one job.
        profiles: files of torch.profiler's `export_chrome_trace`, of the same ranks.

    Returns:
        Sentences about problems of the traces; empty if there are none.

    Raises:
        ConfigError: the dumps belong to different jobs, `path` cannot be written, or a
            profile cannot be read or placed.
    """
    dumps = list(dumps)
    notes = check_together(dumps)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"job": dumps[0].job, "notes": notes},
        "traceEvents": events(dumps)
        + profiler_events(
            dumps,
            [p if isinstance(p, Profile) else read_profile(p) for p in profiles],
            _zero_of(dumps),
        ),
    }
    write_file(path, json.dumps(document, separators=(",", ":")).encode())
    return notes


def _zero_of(dumps: Iterable[Dump]) -> int:
    """Begin of the first span, by the clock of rank 0."""
    return min((s.begin_ns for dump in dumps for s in dump.aligned()), default=0)


def events(dumps: Iterable[Dump]) -> list[_Event]:
    """Events of all ranks; times count from the begin of the first span."""
    aligned = [(dump, dump.aligned()) for dump in dumps]
    zero = min((s.begin_ns for _, spans in aligned for s in spans), default=0)
    flows = Flows()
    found = [
        event for dump, spans in aligned for event in _of_rank(dump, spans, zero, flows)
    ]
    return found + flows.events()


def _of_rank(dump: Dump, spans: list[Span], zero: int, flows: Flows) -> list[_Event]:
    groups: dict[tuple[int, str], list[Span]] = {}
    for span in spans:
        groups.setdefault(_place(span), []).append(span)
    pauses: dict[Span, list[Pause]] = {}
    for pause in pauses_of(spans):
        pauses.setdefault(pause.message, []).append(pause)
    out: list[_Event] = [_meta(dump.rank, 0, "process_name", f"rank {dump.rank}")]
    out.append(
        {"ph": "M", "pid": dump.rank, "name": "process_sort_index"}
        | {"args": {"sort_index": dump.rank}}
    )
    thread = 0
    for (_, title), members in sorted(groups.items()):
        for i, lane in enumerate(lanes(members)):
            thread += 1
            name = title if i == 0 else f"{title} ({i + 1})"
            out.append(_meta(dump.rank, thread, "thread_name", name))
            out.append(
                {
                    "ph": "M",
                    "pid": dump.rank,
                    "tid": thread,
                    "name": "thread_sort_index",
                }
                | {"args": {"sort_index": thread}}
            )
            for span in lane:
                out += _of_span(dump, span, thread, zero)
                at = Place(dump.rank, thread, (span.begin_ns - zero) / 1e3)
                flows.add(dump, span, at)
                for pause in pauses.get(span, ()):
                    out.append(_of_pause(dump, pause, thread, zero))
    return out


def _meta(rank: int, thread: int, what: str, name: str) -> _Event:
    return {"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {"name": name}}


def is_taken(span: Span) -> bool:
    """True for a micro-batch that was taken over from the rank `peer`."""
    return span.kind == Kind.SECTION and span.peer >= 0


def _place(span: Span) -> tuple[int, str]:
    """The group of lanes of a span: its position from the top, and its title."""
    peer = f"rank {span.peer}" if span.peer >= 0 else "a rank that is not known"
    match span.kind:
        case Kind.STOP:
            return 0, "stopped"
        case Kind.SECTION:
            return (2, "taken over") if is_taken(span) else (1, "step")
        case Kind.OPERATION:
            return 3, "operations"
        case Kind.HOLE:
            return 4, "data shards not from their primaries"
        case Kind.SEND:
            return 5, f"to {peer}"
        case Kind.SEND_CHUNK:
            return 6, f"chunks to {peer}"
    return 7, f"chunks from {peer}"


def title_of(dump: Dump, span: Span) -> str:
    """Title of a span."""
    match span.kind:
        case Kind.STOP:
            return "stopped"
        case Kind.SECTION:
            name = dump.names[span.name] if span.name < len(dump.names) else "section"
            return f"{name} from rank {span.peer}" if is_taken(span) else name
        case Kind.OPERATION:
            return f"{dump.operations.get(span.detail, 'operation')} {span.number}"
        case Kind.HOLE:
            return _title_of_hole(dump, span)
    return f"{FRAMES.get(span.detail, 'frame')} {span.number}"


def _title_of_hole(dump: Dump, span: Span) -> str:
    primary = dump.primary_of(span)
    whose = "a rank that is not known" if primary is None else f"rank {primary}"
    if span.outcome == SpanOutcome.SKIPPED:
        return f"nobody for {whose} in {span.number}"
    by = f"rank {span.peer}" if span.peer >= 0 else "a rank that is not known"
    return f"{by} for {whose} in {span.number}"


def _of_pause(dump: Dump, pause: Pause, thread: int, zero: int) -> _Event:
    args: dict[str, Any] = {"priority": pause.message.priority}
    if pause.by is not None:
        args |= {"for": title_of(dump, pause.by), "for_priority": pause.by.priority}
        args["for_peer"] = pause.by.peer
    place = {"pid": dump.rank, "tid": thread, "cat": "pause"}
    when = pause.begin_ns - zero, pause.end_ns - zero
    return _complete(place, pause.reason, when, args)


def _complete(
    place: _Event, name: str, when: tuple[int, int], args: dict[str, Any]
) -> _Event:
    begin, end = when
    times = {"ts": begin / 1e3, "dur": max(0, end - begin) / 1e3}
    return {"ph": "X", **place, "name": name, **times, "args": args}


def _of_span(dump: Dump, span: Span, thread: int, zero: int) -> list[_Event]:
    args: dict[str, Any] = {}
    if span.step >= 0:
        args["step"] = span.step
    if span.kind == Kind.SECTION and (label := label_of(title_of(dump, span))):
        args["stage"] = label.stage
        if label.micro_batch >= 0:
            args["micro_batch"] = label.micro_batch
    if is_taken(span):
        epoch, number = divmod(span.number, 1 << _NUMBER_BITS)
        args |= {"epoch": epoch, "micro_batch": number}
    if span.kind not in (Kind.SECTION, Kind.STOP):
        if span.name < len(dump.names):
            args["group"] = dump.names[span.name]
        args |= {"number": span.number, "bytes": span.bytes}
        args["outcome"] = SpanOutcome(span.outcome).name.lower()
        if span.priority:
            args["priority"] = span.priority
        if span.peer >= 0:
            args["last_called" if span.kind == Kind.OPERATION else "peer"] = span.peer
    if span.kind in (Kind.SEND, Kind.SEND_CHUNK, Kind.RECEIVE_CHUNK):
        args |= {"shard": span.shard, "offset": span.offset}

    place = {"pid": dump.rank, "tid": thread, "cat": Kind(span.kind).name.lower()}

    def event(name: str, begin: int, end: int, args: dict[str, Any]) -> _Event:
        return _complete(place, name, (begin - zero, end - zero), args)

    out = [event(title_of(dump, span), span.begin_ns, span.end_ns, args)]
    if span.kind == Kind.OPERATION and span.first_ns > span.begin_ns:
        who = f"waiting for rank {span.peer}" if span.peer >= 0 else "waiting"
        out.append(event(who, span.begin_ns, min(span.first_ns, span.end_ns), {}))
    if span.kind == Kind.SEND and span.first_ns > span.begin_ns:
        out.append(event("queued", span.begin_ns, min(span.first_ns, span.end_ns), {}))
    return out
