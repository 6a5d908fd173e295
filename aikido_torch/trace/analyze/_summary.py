# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Content of reports on traces: ranks, arrivals, links, skips, backups and culprits."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from aikido_torch.trace.analyze._attribute import attribute_joined
from aikido_torch.trace.analyze._backups import BackupSummary, backups_of
from aikido_torch.trace.analyze._fitting import spans_of
from aikido_torch.trace.analyze._pauses import pauses_of
from aikido_torch.trace.analyze._stages import PipelineSummary, pipeline_of
from aikido_torch.trace.analyze._step_facts import facts_of
from aikido_torch.trace.analyze._units import in_ms, percent
from aikido_torch.trace.analyze._verdict import Verdict
from aikido_torch.trace.record._dump import Dump, check_together
from aikido_torch.trace.record._spans import Kind, SpanOutcome

__all__ = [
    "PauseSummary",
    "RankSummary",
    "Summary",
    "note_of",
    "part_of_verdict",
    "ranks_of",
    "sentence_on",
    "summarize",
]

# Name and members of the group, and the number of the call in the group.
_Call = tuple[tuple[str, tuple[int, ...]], int]


@dataclass(frozen=True)
class RankSummary:
    """Medians over the steps of a rank, in ms; shares of its calls.

    Attributes:
        work_ms: own work in a step.
        input_ms: wait for data in a step.
        step_ms: length of a step.
        waited_ms: time of a call until the last other rank had called.
        wire_ms: time of a call from then to its end.
        last: share of the calls in which it was the last of its group to call.
        skipped: calls without its contribution.
        failed: calls that failed.
        stopped_ms: total time in which the process did not run.
        num_calls: traced calls.
    """

    work_ms: float
    input_ms: float
    step_ms: float
    waited_ms: float
    wire_ms: float
    last: float
    skipped: int
    failed: int
    stopped_ms: float
    num_calls: int


@dataclass(frozen=True)
class PauseSummary:
    """Pauses of the messages of a rank, for one reason.

    Attributes:
        rank: sender of the messages.
        reason: reason of the pauses.
        num_pauses: number of pauses of all its messages.
        total_ms: their sum.
        longest_ms: the longest of them.
    """

    rank: int
    reason: str
    num_pauses: int
    total_ms: float
    longest_ms: float


@dataclass
class Summary:
    """Content of the reports.

    Attributes:
        job: name of the job.
        notes: sentences about missing or doubtful data.
        steps: steps that were traced on some rank, ascending.
        ranks: summaries by rank.
        arrivals: by step and rank, delay of its last call behind the first rank's, in
            ms by the clock of rank 0.
        rates: by sender and receiver, bytes per second while data was in transfer.
        verdicts: verdicts on windows of five steps, or of more if five are too few.
        pauses: pauses of messages, by rank, the largest total first.
        backups: replacements by backups, by primary; empty if there were none.
        pipeline: its stages and bubbles; None if there is no pipeline.
    """

    job: str
    notes: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    ranks: dict[int, RankSummary] = field(default_factory=dict)
    arrivals: dict[int, dict[int, float]] = field(default_factory=dict)
    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    pauses: list[PauseSummary] = field(default_factory=list)
    backups: list[BackupSummary] = field(default_factory=list)
    pipeline: PipelineSummary | None = None


def summarize(dumps: Iterable[Dump]) -> Summary:
    """Evaluates the dumps; raises ConfigError if they belong to different jobs."""
    dumps = sorted(dumps, key=lambda dump: dump.rank)
    summary = Summary("", check_together(dumps))
    summary.job = dumps[0].job
    facts = facts_of(dumps)
    last, matched = _last_callers(dumps)
    totals: defaultdict[tuple[int, int], list[float]] = defaultdict(lambda: [0, 0])
    for each in facts:
        for pair, link in each.links.items():
            totals[pair][0] += link.num_bytes
            totals[pair][1] += link.seconds
    summary.rates = {pair: b / s for pair, (b, s) in sorted(totals.items()) if s > 0}
    summary.arrivals = _arrivals(dumps)
    summary.steps = sorted(summary.arrivals)
    summary.verdicts = attribute_joined(facts)
    summary.pauses = [each for dump in dumps for each in _pauses(dump)]
    summary.backups = backups_of(dumps)
    summary.pipeline = pipeline_of(dumps)
    for dump in dumps:
        own = [each.ranks[dump.rank] for each in facts if dump.rank in each.ranks]
        calls = [
            s
            for s in dump.spans
            if s.kind == Kind.OPERATION and s.outcome != SpanOutcome.OPEN
        ]
        stops = [s for s in dump.spans if s.kind == Kind.STOP]
        outcomes = Counter(s.outcome for s in calls)
        summary.ranks[dump.rank] = RankSummary(
            work_ms=_median([o.work_s * 1e3 for o in own]),
            input_ms=_median([o.input_s * 1e3 for o in own]),
            step_ms=_median([o.length_s * 1e3 for o in own]),
            waited_ms=_median([(s.first_ns - s.begin_ns) / 1e6 for s in calls]),
            wire_ms=_median([(s.end_ns - s.first_ns) / 1e6 for s in calls]),
            last=last[dump.rank] / max(1, matched[dump.rank]),
            skipped=outcomes[SpanOutcome.SKIPPED],
            failed=outcomes[SpanOutcome.FAILED],
            stopped_ms=sum(s.end_ns - s.begin_ns for s in stops) / 1e6,
            num_calls=len(calls),
        )
    return summary


def note_of(rank: RankSummary) -> str:
    """Remarks about a rank that affect its times; usually empty."""
    notes = []
    if rank.skipped:
        notes.append(f"skipped in {rank.skipped} of {rank.num_calls} calls")
    if rank.failed:
        notes.append(f"{rank.failed} of {rank.num_calls} calls failed")
    if rank.stopped_ms >= 1:
        notes.append(f"stopped for {in_ms(rank.stopped_ms / 1e3)}")
    return ", ".join(notes)


def ranks_of(verdict: Verdict) -> str:
    """The ranks of a verdict in short form: "0, 4-7", or "1 to 2" for a link."""
    links = [f"{c.rank} to {c.peer}" for c in verdict.culprits if c.peer is not None]
    if not verdict.culprits and verdict.rank is not None:
        return str(verdict.rank)
    return ", ".join([*links, *([spans_of(verdict.ranks)] if verdict.ranks else [])])


def part_of_verdict(verdict: Verdict) -> str:
    """The part of the step with the largest loss; empty if unknown."""
    return (verdict.culprits[0].part or "") if verdict.culprits else ""


def sentence_on(pipeline: PipelineSummary) -> str:
    """Sentence about the balance of a pipeline, for a heading."""
    return (
        f"{percent(pipeline.bubble)} of the ranks' time is bubbles; stage "
        f"{pipeline.slowest} is the slowest, {percent(pipeline.imbalance)} above the "
        "mean of the stages"
    )


def _pauses(dump: Dump) -> list[PauseSummary]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for pause in pauses_of(dump.spans):
        times[pause.reason].append((pause.end_ns - pause.begin_ns) / 1e6)
    found = [
        PauseSummary(dump.rank, reason, len(ms), sum(ms), max(ms))
        for reason, ms in times.items()
    ]
    return sorted(found, key=lambda each: -each.total_ms)


def _median(values: list[float]) -> float:
    return median(values) if values else 0.0


def _last_callers(dumps: list[Dump]) -> tuple[Counter[int], Counter[int]]:
    """How often each rank was the last to call, and its number of counted calls.

    Calls are ordered by the clock of rank 0. A call counts if all traced members of its
    group made it.
    """
    told = {dump.rank for dump in dumps}
    calls: defaultdict[_Call, dict[int, int]] = defaultdict(dict)
    for dump in dumps:
        groups = dump.groups()
        for span in dump.aligned():
            if span.kind == Kind.OPERATION:
                calls[groups[span.name], span.number][dump.rank] = span.begin_ns
    last: Counter[int] = Counter()
    matched: Counter[int] = Counter()
    for ((_, members), _), made in calls.items():
        if len(made) < 2 or made.keys() != told.intersection(members):
            continue
        last[max(made, key=lambda rank: (made[rank], rank))] += 1
        matched.update(made.keys())
    return last, matched


def _arrivals(dumps: list[Dump]) -> dict[int, dict[int, float]]:
    last: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for dump in dumps:
        for span in dump.aligned():
            if span.kind == Kind.OPERATION and span.step >= 0:
                before = last[span.step].get(dump.rank, span.begin_ns)
                last[span.step][dump.rank] = max(before, span.begin_ns)
    return {
        step: {rank: (at - min(made.values())) / 1e6 for rank, at in made.items()}
        for step, made in sorted(last.items())
    }
