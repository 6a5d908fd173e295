# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Urgent messages during continuous bulk traffic between two hosts."""

import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Samples
from benchmarks.lab import Lab, Program
from benchmarks.launch import RanksFailedError
from benchmarks.ordering_cases.urgent_runs import lab_of
from benchmarks.straggler_cases.case import Bar, Case, CaseError, Context, Row
from benchmarks.straggler_cases.runs import first_line

PROGRAM = Path(__file__).resolve().with_name("urgent_stream_rank.py")
MBIT = 200.0
QUEUE_MS = 50.0
LIMIT_S = 120.0
# Limits of the time of a message, in ms.
P50_MS, P99_MS = 0.8, 3.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Work of the two ranks of a run."""

    backend: str = "aikido"
    num_bulk: int = 100
    bulk_bytes: int = 1_000_000
    num_urgent: int = 100
    urgent_bytes: int = 4096
    priority: int = 10
    every_s: float = 0.025
    is_told: bool = True  # true if the group has the option transport_priority
    seed: int = 0


@dataclass
class Record:
    """Observations of the two ranks."""

    plan: Plan
    seen: dict[str, Any] = field(default_factory=dict)

    @property
    def latencies_ms(self) -> list[float]:
        """Times of urgent messages that arrived during bulk, in their order."""
        pairs = zip(self.seen["begins"], self.seen["ends"], strict=True)
        return [
            1e3 * (end - begin) for begin, end in pairs if end < self.seen["bulk_end"]
        ]

    @property
    def rate(self) -> float:
        return self.seen["bulk_rate"]


def run(lab: Lab, plan: Plan, context: Context) -> Record:
    """Runs the plan. Raises CaseError with one sentence if a rank failed."""
    record = Record(plan)
    argument = json.dumps(dataclasses.asdict(plan))
    try:
        lab.run(
            Program(PROGRAM, (argument,)),
            deadline_s=LIMIT_S,
            on_event=lambda rank, event: record.seen.update(event),
        )
    except RanksFailedError as error:
        raise CaseError(first_line(str(error))) from error
    context.on_record({"plan": dataclasses.asdict(plan), **record.seen})
    if plan.num_urgent and not record.latencies_ms:
        raise CaseError("no urgent message came while there was bulk")
    return record


def stream(case: Case, context: Context) -> list[Row]:
    """Measures bulk with and without urgent messages, in separate runs.

    Separate, because bulk alone must be measured in a group that has never had an
    urgent message, and one arm uses a group without the option transport_priority.
    """
    repeats = context.pick(3, 8)
    urgent, alone, without_option, gloo = [], [], [], []
    with lab_of(2, mbit=MBIT, queue_ms=QUEUE_MS) as lab:
        for i in range(repeats):
            plan = Plan(seed=context.seed + i)
            urgent.append(run(lab, plan, context))
            without = dataclasses.replace(plan, is_told=False)
            alone.append(run(lab, dataclasses.replace(without, num_urgent=0), context))
            without_option.append(run(lab, without, context))
            context.on_progress((i + 0.8) / repeats)
            if i == 0:
                plan = dataclasses.replace(plan, backend="gloo", num_urgent=30)
                gloo.append(run(lab, plan, context))
    times = Samples(tuple(t for record in urgent for t in record.latencies_ms))
    theirs = Samples(tuple(t for record in gloo for t in record.latencies_ms))
    late = Samples(tuple(t for record in without_option for t in record.latencies_ms))
    inversions = sum(record.seen["counters"]["inversions"] for record in urgent)
    last = urgent[-1].seen["counters"]
    return [
        case.judge(
            0,
            value=times.median,
            reference=P50_MS,
            gloo=theirs.median,
            note=f"{len(times.values)} messages; credit {last['credit_bytes']} bytes, "
            f"{last['preemptions']} preemptions in the last run",
        ),
        case.judge(
            1, value=times.quantile(0.99), reference=P99_MS, gloo=theirs.quantile(0.99)
        ),
        case.judge(
            2,
            value=_mbit(urgent),
            reference=_mbit(alone),
            gloo=_mbit(gloo),
        ),
        case.judge(3, value=inversions, reference=1),
        case.judge(
            4,
            value=_first_ms(urgent),
            reference=P99_MS,
            gloo=_first_ms(gloo),
            note=f"the slowest of {repeats}",
        ),
        case.show(
            "first message of a group without the option",
            value=_first_ms(without_option),
            unit="ms",
            note=f"all {len(late.values)} messages there: p50 {late.median:.2f} ms, "
            f"p99 {late.quantile(0.99):.2f} ms",
        ),
    ]


def _first_ms(records: list[Record]) -> float:
    return max(record.latencies_ms[0] for record in records)


def _mbit(records: list[Record]) -> float:
    return statistics.median(8e-6 * record.rate for record in records)


CASES = [
    Case(
        name="urgent-message",
        what=f"2 hosts of {MBIT:g} Mbit/s, queues of {QUEUE_MS:g} ms; 4 KiB while 1 MB "
        "messages follow each other",
        bars=(
            Bar(what="urgent message, p50", of=f"{P50_MS:g} ms", bar=1.0),
            Bar(what="urgent message, p99", of=f"{P99_MS:g} ms", bar=1.0),
            Bar(
                what="bulk",
                of="bulk alone",
                bar=0.97,
                unit="Mbit/s",
                better="higher",
            ),
            Bar(what="inversions", of="1", bar=0.0, unit=""),
            Bar(what="first message", of=f"{P99_MS:g} ms", bar=1.0),
        ),
        measure=stream,
    )
]
