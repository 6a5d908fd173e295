# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Facts about each step from spans: the own work of each rank, and times of links.

Only one fact compares the clocks of two ranks: the time in which a sender was stopped.
The own work of a rank uses its own clock alone. Time after a call counts as no rank's
work, because all ranks get the result at the same time.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from aikido_torch.trace.analyze._stages import RUN, stage_works
from aikido_torch.trace.analyze._verdict import Part
from aikido_torch.trace.record._dump import Dump
from aikido_torch.trace.record._spans import Kind, Span, SpanOutcome

__all__ = ["LinkStep", "RankStep", "StepFacts", "facts_of"]

# Error of the begin of a stop: the thread that detects stops checks the clock at this
# interval, and a stop begins at its last check (csrc/trace/stop_watch.h).
_LOOK_NS = 40_000_000
# The time of shorter payloads is mostly that of the header.
_LEAST_BYTES = 4096
# Parts of a step in which a rank is busy, even if calls are in progress: name of the
# section, and the part.
_BUSY: dict[str, Part] = {
    "data": "input",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
}


@dataclass(frozen=True)
class RankStep:
    """One step of one rank, in seconds.

    Attributes:
        work_s: from the results of the step before to the last call of this step,
            without waits in between; the time for which the rank alone is responsible.
        input_s: part of it in which the rank waited for data.
        stopped_s: time of the whole step in which the process did not run. A stop that
            began in the step before counts in the step with the larger part.
        stopped_in_work_s: part of it within work_s.
        unsure_s: error of stopped_in_work_s, and so of the remaining work.
        length_s: from the results of the step before to the results of this step.
        parts: seconds of work_s by part of the step: "input", "forward", "backward",
            "optimizer", and "loop" for the code between them. Empty if no parts were
            recorded.
        stages: in a pipeline: seconds of computation for one micro-batch, by stage of
            the rank.
        planned_s: planned time of each of these stages, in any unit of work; empty
            without a plan.
    """

    work_s: float
    input_s: float = 0.0
    stopped_s: float = 0.0
    stopped_in_work_s: float = 0.0
    unsure_s: float = 0.0
    length_s: float = 0.0
    parts: Mapping[Part, float] = field(default_factory=dict)
    stages: Mapping[int, float] = field(default_factory=dict)
    planned_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkStep:
    """Data that one rank received from another in a step.

    Attributes:
        num_bytes: bytes of payloads.
        seconds: time of their transfers, each from header to last byte.
    """

    num_bytes: int
    seconds: float


@dataclass
class StepFacts:
    """One step of all ranks that recorded it.

    Attributes:
        step: its number.
        ranks: facts by rank.
        links: facts by sender and receiver.
    """

    step: int
    ranks: dict[int, RankStep] = field(default_factory=dict)
    links: dict[tuple[int, int], LinkStep] = field(default_factory=dict)


def facts_of(dumps: Iterable[Dump]) -> list[StepFacts]:
    """The facts of each step in order, except the first traced step.

    The first step has no step before it that shows when it began.
    """
    dumps = list(dumps)
    steps: dict[int, StepFacts] = {}
    stops = {dump.rank: _stops_by_rank_0(dump) for dump in dumps}
    step_of_call = {
        (groups[s.name], s.number): s.step
        for dump in dumps
        for groups in [dump.groups()]
        for s in dump.spans
        if s.kind == Kind.OPERATION and s.step >= 0
    }
    for dump in dumps:
        for step, facts in _rank_steps(dump).items():
            steps.setdefault(step, StepFacts(step)).ranks[dump.rank] = facts
    for dump in dumps:
        for (step, source), link in _links(dump, step_of_call, stops).items():
            if step in steps:
                steps[step].links[source, dump.rank] = link
    return [steps[step] for step in sorted(steps)]


class Timeline:
    """Spans sorted by time, for quick access to the spans of one step."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._spans = sorted(spans, key=lambda span: span.begin_ns)
        self._begins = [span.begin_ns for span in self._spans]
        # Latest end of all spans up to each; ascending although spans may overlap.
        self._ends = list(accumulate((span.end_ns for span in self._spans), max))

    def between(self, begin: int, end: int) -> list[Span]:
        """Spans that overlap with a time range, and possibly earlier ones."""
        first = bisect_right(self._ends, begin)
        return self._spans[first : bisect_left(self._begins, end)]

    def within(self, begin: int, end: int) -> int:
        """Nanoseconds of a range that are covered by spans that do not overlap."""
        return sum(
            max(0, min(s.end_ns, end) - max(s.begin_ns, begin))
            for s in self.between(begin, end)
        )


def _pipeline_steps(dump: Dump) -> dict[int, RankStep]:
    """Steps of a rank of a pipeline: its computation, and its work between runs."""
    found = {}
    stopped = [s for s in dump.spans if s.kind == Kind.STOP]
    stops = Timeline(stopped)
    sections = [s for s in dump.spans if s.kind == Kind.SECTION]
    runs = {s.step: s for s in sections if dump.names[s.name] == RUN}
    for step, work in stage_works(dump).items():
        if step - 1 not in runs:
            continue  # the begin of the step is unknown
        parts: dict[Part, float] = {"loop": work.before_s}
        for by_part in work.stages.values():
            for part, seconds in by_part.items():
                parts[part] = parts.get(part, 0.0) + seconds
        begin, end = runs[step - 1].end_ns, runs[step].end_ns
        in_loop = stops.within(begin, runs[step].begin_ns) / 1e9
        parts["loop"] = max(0.0, parts["loop"] - in_loop)
        found[step] = RankStep(
            work_s=sum(parts.values()),
            stopped_s=_stopped(stopped, begin, end) / 1e9,
            unsure_s=_unsure(stopped, begin, end) / 1e9,
            length_s=(end - begin) / 1e9,
            parts=parts,
            stages={
                stage: sum(by_part.values())
                / max(1, work.num_micro_batches.get(stage, 0))
                for stage, by_part in work.stages.items()
            },
            planned_s=work.planned_s,
        )
    return found


def _rank_steps(dump: Dump) -> dict[int, RankStep]:
    if RUN in dump.names and (found := _pipeline_steps(dump)):
        return found
    calls: defaultdict[int, list[Span]] = defaultdict(list)
    sections: defaultdict[str, list[Span]] = defaultdict(list)
    stopped = []
    for span in dump.spans:
        if span.kind == Kind.OPERATION and span.outcome == SpanOutcome.OPEN:
            continue  # the end of the call is unknown
        if span.kind == Kind.OPERATION and span.step >= 0:
            calls[span.step].append(span)
        elif span.kind == Kind.SECTION:
            sections[dump.names[span.name]].append(span)
        elif span.kind == Kind.STOP:
            stopped.append(span)
    stops, data = Timeline(stopped), Timeline(sections["data"])
    all_waits = Timeline(sections["wait"])
    all_busy = Timeline(s for name in _BUSY for s in sections[name])
    by_part = {part: Timeline(sections[name]) for name, part in _BUSY.items()}
    found = {}
    for step in sorted(calls):
        if step - 1 not in calls:
            continue
        begin = max(s.end_ns for s in calls[step - 1])
        last_call = max(s.begin_ns for s in calls[step])
        end = max(s.end_ns for s in calls[step])
        # The rank called early, so the length of its work is unknown.
        if last_call < begin:
            continue
        busy = all_busy.between(begin, last_call)
        waited = all_waits.between(begin, last_call)
        waits = _waited(waited, calls[step], busy, begin, last_call)
        work_s = (last_call - begin - waits) / 1e9
        parts = _parts(by_part, waited, stopped, begin, last_call) if busy else {}
        if parts:
            stop_s = stops.within(begin, last_call) / 1e9
            parts["loop"] = max(0.0, work_s - stop_s - sum(parts.values()))
        found[step] = RankStep(
            work_s=work_s,
            input_s=data.within(begin, last_call) / 1e9,
            stopped_s=_stopped(stopped, begin, max(end, last_call)) / 1e9,
            stopped_in_work_s=stops.within(begin, last_call) / 1e9,
            unsure_s=_unsure(stopped, begin, last_call) / 1e9,
            length_s=(max(end, last_call) - begin) / 1e9,
            parts=parts,
        )
    return found


def _overlap(span: Span, begin: int, end: int) -> int:
    """Nanoseconds of a span within a range."""
    return max(0, min(span.end_ns, end) - max(span.begin_ns, begin))


def _stopped(stops: list[Span], begin: int, end: int) -> int:
    """Nanoseconds of a step in which the process did not run.

    A piece of a stop that is shorter than the error of its begin counts only if it is
    the largest piece.
    """
    total = 0
    for stop in stops:
        inside = _overlap(stop, begin, end)
        if inside >= _LOOK_NS or 2 * inside >= stop.end_ns - stop.begin_ns:
            total += inside
    return total


def _unsure(stops: list[Span], begin: int, end: int) -> int:
    """Nanoseconds by which stops within a range may be wrong."""
    return sum(min(_overlap(stop, begin, end), _LOOK_NS) for stop in stops)


def _parts(
    by_part: dict[Part, Timeline],
    waited: list[Span],
    stopped: list[Span],
    begin: int,
    end: int,
) -> dict[Part, float]:
    """Seconds of each part within a range, without waits and stops."""
    idle = _union([*waited, *stopped])
    found: dict[Part, float] = {}
    for part, timeline in by_part.items():
        total = 0
        for span in timeline.between(begin, end):
            first, last = max(span.begin_ns, begin), min(span.end_ns, end)
            if first < last:
                idle_ns = sum(max(0, min(b, last) - max(a, first)) for a, b in idle)
                total += last - first - idle_ns
        found[part] = total / 1e9
    return found


def _union(spans: list[Span]) -> list[tuple[int, int]]:
    """Time ranges that are covered by any of the spans."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted((s.begin_ns, s.end_ns) for s in spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _waited(
    waits: list[Span], calls: list[Span], busy: list[Span], begin: int, end: int
) -> int:
    """Nanoseconds within a range in which the rank waited for a call.

    Waits for the future of a call are not recorded. If parts of the step are recorded,
    time is taken for such a wait if a call is in progress and no part of the step is.
    """
    changes = []
    for kind, spans in enumerate((waits, calls, busy)):
        for span in spans:
            first, last = max(span.begin_ns, begin), min(span.end_ns, end)
            if first < last:
                changes += [(first, kind, 1), (last, kind, -1)]
    is_told = any(kind == 2 for _, kind, _ in changes)
    under_way = [0, 0, 0]
    total, before = 0, begin
    for at, kind, change in sorted(changes):
        waiting, calling, working = under_way
        if waiting or (is_told and calling and not working):
            total += at - before
        under_way[kind] += change
        before = at
    return total


def _stops_by_rank_0(dump: Dump) -> Timeline:
    return Timeline(s for s in dump.aligned() if s.kind == Kind.STOP)


def _links(
    dump: Dump,
    step_of_call: dict[tuple[tuple[str, tuple[int, ...]], int], int],
    stops: dict[int, Timeline],
) -> dict[tuple[int, int], LinkStep]:
    """By step and sender. Transfers while either end was stopped are excluded."""
    totals: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    groups = dump.groups()
    for span in dump.aligned():
        if span.kind != Kind.RECEIVE_CHUNK or span.bytes < _LEAST_BYTES:
            continue
        if span.peer < 0:  # the members of the group are unknown
            continue
        step = step_of_call.get((groups[span.name], span.number))
        ends = (stops[rank] for rank in (dump.rank, span.peer) if rank in stops)
        if step is None or any(e.within(span.begin_ns, span.end_ns) > 0 for e in ends):
            continue
        total = totals[step, span.peer]
        total[0] += span.bytes
        total[1] += span.end_ns - span.begin_ns
    return {place: LinkStep(b, ns / 1e9) for place, (b, ns) in totals.items()}
