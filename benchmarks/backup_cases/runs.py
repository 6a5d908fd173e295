# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the ranks of a case; collects their observations of each training.

For the main thread.
"""

import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.backup_cases import plan
from benchmarks.backup_cases.plan import WELL_STEPS, Training
from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.local_ranks import run_ranks
from benchmarks.straggler_cases.case import CaseError, Context
from benchmarks.straggler_cases.runs import first_line

PROGRAM = "backup_cases/rank.py"


@dataclass
class Record:
    """One training as observed by all ranks. Times are by the machine's clock."""

    training: Training
    by_rank: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def first(self) -> dict[str, Any]:
        return self.by_rank[0]

    def check(self) -> None:
        """Raises CaseError unless all ranks ended with the same parameters."""
        found = {rank: seen["fingerprint"] for rank, seen in self.by_rank.items()}
        if len(found) != self.training.size or len(set(found.values())) != 1:
            raise CaseError(
                f"the ranks of '{self.training.name}' ended with other parameters: "
                f"{found}"
            )

    def late_in(self, step: int) -> set[int]:
        """Data shards that did not come from their primary."""
        stand_ins = self.first["stand_ins"][step]
        return {*self.first["skipped"][step], *map(int, stand_ins)}

    def share_late(self, rank: int) -> float:
        """Share of the steps in which the rank may be late."""
        steps = range(WELL_STEPS, self.training.steps)
        return sum(rank in self.late_in(step) for step in steps) / len(steps)

    def count(self, name: str) -> int:
        """Number of data shards that were "skipped", or contributed by "stand_ins"."""
        return sum(len(found) for found in self.first[name])

    def step_ms(self, ranks: Sequence[int]) -> float:
        """Mean duration of a step after the first ones, on the median rank of these."""
        means = []
        for rank in ranks:
            ends = self.by_rank[rank]["ends"]
            # The first step after them contains the meeting.
            steps = len(ends) - WELL_STEPS - 1
            means.append(1e3 * (ends[-1] - ends[WELL_STEPS]) / steps)
        return statistics.median(means)

    def sent_bytes(self, *, well: bool) -> float:
        """Bytes sent by all hosts per step: of the steps without late ranks, or of the
        others.
        """
        steps = WELL_STEPS if well else self.training.steps - WELL_STEPS
        at = 0 if well else 1
        sent = (seen["sent"] for seen in self.by_rank.values())
        return sum(own[at + 1] - own[at] for own in sent) / steps

    def facts(self) -> dict[str, Any]:
        return {"training": asdict(self.training), "by_rank": self.by_rank}


@contextlib.contextmanager
def lab_of(num_hosts: int, *, mbit: float | None) -> Iterator[Lab]:
    links = [Link(up_mbit=mbit, down_mbit=mbit)] * num_hosts
    with Lab(links) as lab:
        yield lab


def run(
    trainings: Sequence[Training],
    context: Context,
    *,
    lab: Lab | None = None,
    data: Path | None = None,
) -> list[Record]:
    """Runs all trainings with one set of ranks; without a lab on this machine's
    loopback.

    Raises CaseError with one sentence if a rank failed or had other parameters.
    """
    records = [Record(training) for training in trainings]
    total = sum(t.steps for t in trainings)
    before = [sum(t.steps for t in trainings[:i]) for i in range(len(trainings) + 1)]
    failed: list[str] = []
    current = 0

    def on_event(event: dict[str, Any]) -> None:
        nonlocal current
        if "failed" in event:
            failed.append(f"rank {event['rank']}: {event['failed']}")
        if "ended" in event:
            current = event["ended"] + 1
            _set_links(lab, {})
        if event.get("met") == 1:
            _set_links(lab, trainings[current].links)
        if "done" in event or "ended" in event:
            context.on_progress((before[current] + event.get("done", 0)) / total)

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, plan.PLAN_FILE).write_text(plan.to_json(trainings))
        argument = {"folder": folder} | ({"data": str(data)} if data else {})
        try:
            _start(lab, trainings, json.dumps(argument), on_event)
        except RanksFailedError as error:
            raise CaseError(failed[0] if failed else first_line(str(error))) from error
        for file in Path(folder).glob("*.jsonl"):
            for line in file.read_text().splitlines():
                seen = json.loads(line)
                records[seen.pop("training")].by_rank[int(file.stem)] = seen
    for record in records:
        context.on_record(record.facts())
        record.check()
    return records


def _set_links(lab: Lab | None, links: Mapping[int, float]) -> None:
    """Sets the links of the named hosts; the others get the usual link."""
    if lab is None:
        return
    usual = max(link.up_mbit or 0.0 for link in lab.links) or None
    for host, link in enumerate(lab.links):
        mbit = links.get(host, usual)
        if link.up_mbit != mbit:
            lab.change(host, up_mbit=mbit, down_mbit=mbit)


def _start(
    lab: Lab | None,
    trainings: Sequence[Training],
    argument: str,
    on_event: Callable[[dict[str, Any]], None],
) -> None:
    num_ranks = max(training.size for training in trainings)
    limit_s = 2 * plan.estimate_s(trainings) + 60 + 5 * num_ranks
    if lab is None:
        run_ranks(
            PROGRAM, argument, num_ranks=num_ranks, limit_s=limit_s, on_event=on_event
        )
        return
    program = Path(__file__).resolve().with_name("rank.py")
    lab.run(
        Program(program, (argument,)),
        num_ranks=num_ranks,
        deadline_s=limit_s,
        on_event=lambda rank, event: on_event(event),
    )


def named(records: Sequence[Record], name: str) -> list[Record]:
    return [record for record in records if record.training.name == name]
