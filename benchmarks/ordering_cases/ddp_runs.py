# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the ranks of a case of trainings; collects their observations.

For the main thread.
"""

import contextlib
import itertools
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.ordering_cases import ddp_plan
from benchmarks.ordering_cases.ddp_plan import Layer, Training
from benchmarks.straggler_cases.case import CaseError, Context
from benchmarks.straggler_cases.meeting import Host
from benchmarks.straggler_cases.runs import first_line

PROGRAM = Path(__file__).resolve().with_name("ddp_rank.py")
# As in a switch; urgent data waits behind the content of a deep queue.
QUEUE_MS = 10.0


@dataclass
class Record:
    """One training as observed by all ranks. Times are by the machine's clock."""

    training: Training
    by_rank: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def step_ms(self) -> float:
        """Mean duration of the measured steps, on the median rank."""
        means = []
        for seen in self.by_rank.values():
            ends = seen["ends"][self.training.warm_up - 1 :]
            means.append(1e3 * (ends[-1] - ends[0]) / (len(ends) - 1))
        return statistics.median(means)

    def last_ms(self, steps: int) -> float:
        """Median of the last steps, on the median rank."""
        medians = []
        for seen in self.by_rank.values():
            ends = seen["ends"][-steps - 1 :]
            taken = [b - a for a, b in itertools.pairwise(ends)]
            medians.append(1e3 * statistics.median(taken))
        return statistics.median(medians)

    def check(self, num_ranks: int) -> None:
        """Raises CaseError unless all ranks ended with the same parameters."""
        found = {rank: seen["fingerprint"] for rank, seen in self.by_rank.items()}
        if len(found) != num_ranks or len(set(found.values())) != 1:
            raise CaseError(
                f"the ranks of '{self.training.name}' ended with other parameters: "
                f"{found}"
            )


@contextlib.contextmanager
def lab_of(num_hosts: int, *, mbit: float) -> Iterator[Lab]:
    link = Link(up_mbit=mbit, down_mbit=mbit, queue_ms=QUEUE_MS)
    with Lab([link] * num_hosts) as lab:
        yield lab


def run(
    lab: Lab,
    models: dict[str, list[Layer]],
    trainings: Sequence[Training],
    context: Context,
) -> list[Record]:
    """Runs all trainings with one set of ranks.

    Raises CaseError with one sentence if a rank failed or had other parameters.
    """
    records = [Record(training) for training in trainings]
    num_hosts = len(lab.links)
    mbit = min(link.up_mbit or 1e5 for link in lab.links)

    def on_met(key: list[Any], values: dict[int, Any]) -> float:
        what, number = key
        rates = {"links": trainings[number].mbit}
        rates["later links"] = trainings[number].later_mbit
        if (rate := rates.get(what)) is not None:
            for host in range(num_hosts):
                lab.change(host, up_mbit=rate, down_mbit=rate)
        return 0.0

    def on_event(rank: int, event: dict[str, Any]) -> None:
        number = event.pop("training")
        records[number].by_rank[event.pop("rank")] = event
        context.on_progress((number + 1) / len(trainings))

    with tempfile.TemporaryDirectory() as folder:
        text = ddp_plan.to_json(models, trainings)
        Path(folder, ddp_plan.PLAN_FILE).write_text(text)
        host = Host(
            folder, num_hosts, on_met=on_met, on_told=lambda rank, message: None
        )
        try:
            lab.run(
                Program(PROGRAM, (json.dumps({"folder": folder}),)),
                deadline_s=ddp_plan.estimate_s(models, trainings, mbit=mbit),
                on_event=on_event,
            )
        except RanksFailedError as error:
            raise CaseError(first_line(str(error))) from error
        finally:
            host.close()
    for record in records:
        context.on_record(
            {"training": asdict(record.training), "by_rank": record.by_rank}
        )
        record.check(num_hosts)
    return records


def step_ms(records: Iterable[Record], name: str) -> list[float]:
    """Step times of all trainings of that name, sorted."""
    found = [r.step_ms for r in records if r.training.name == name]
    return sorted(found)
