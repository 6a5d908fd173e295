# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the ranks of a case; collects their observations of each turn.

For the main thread.
"""

import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.ordering_cases import urgent_plan
from benchmarks.ordering_cases.urgent_plan import Turn
from benchmarks.straggler_cases.case import CaseError, Context
from benchmarks.straggler_cases.meeting import Host
from benchmarks.straggler_cases.runs import first_line

PROGRAM = Path(__file__).resolve().with_name("urgent_rank.py")


@dataclass
class Record:
    """One turn as observed by all ranks. Times are by the machine's clock."""

    turn: Turn
    by_rank: dict[int, dict[str, float]] = field(default_factory=dict)

    def _ms(self, begin: str, end: str) -> float:
        seen = self.by_rank.values()
        return 1e3 * (max(s[end] for s in seen) - max(s[begin] for s in seen))

    @property
    def urgent_ms(self) -> float:
        """Milliseconds from the last rank's call to the last rank's result."""
        return self._ms("begin", "end")

    @property
    def all_ms(self) -> float:
        """Milliseconds from the first call of the turn to the last result of all."""
        return self._ms("bulk_begin", "bulk_end")


@contextlib.contextmanager
def lab_of(
    num_hosts: int, *, mbit: float, queue_ms: float, delay_ms: float = 0.0
) -> Iterator[Lab]:
    link = Link(up_mbit=mbit, down_mbit=mbit, queue_ms=queue_ms, delay_ms=delay_ms)
    with Lab([link] * num_hosts) as lab:
        yield lab


def run(
    lab: Lab,
    turns: Sequence[Turn],
    context: Context,
    *,
    rates: Mapping[int, float] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Record]:
    """Runs all turns with one set of ranks.

    Before turn i all links get `rates[i]` Mbit/s, if it is given. Raises CaseError with
    one sentence if a rank failed.
    """
    records = [Record(turn) for turn in turns]
    mbit = min(link.up_mbit or 1e5 for link in lab.links)

    def on_met(key: list[Any], values: dict[int, Any]) -> float:
        what, number = key
        if what == "settle" and rates and number in rates:
            for host in range(len(lab.links)):
                lab.change(host, up_mbit=rates[number], down_mbit=rates[number])
        return 0.0

    def on_event(rank: int, event: dict[str, Any]) -> None:
        number = event.pop("turn")
        records[number].by_rank[event.pop("rank")] = event
        context.on_progress((number + 1) / len(turns))

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, urgent_plan.PLAN_FILE).write_text(urgent_plan.to_json(turns))
        host = Host(
            folder, len(lab.links), on_met=on_met, on_told=lambda rank, message: None
        )
        try:
            lab.run(
                Program(PROGRAM, (json.dumps({"folder": folder}),)),
                deadline_s=urgent_plan.estimate_s(
                    turns, mbit=min([mbit, *(rates or {}).values()])
                ),
                on_event=on_event,
                env=env,
            )
        except RanksFailedError as error:
            raise CaseError(first_line(str(error))) from error
        finally:
            host.close()
    for record in records:
        context.on_record({"turn": asdict(record.turn), "by_rank": record.by_rank})
        if len(record.by_rank) != len(lab.links):
            raise CaseError(f"not all ranks told of a turn of '{record.turn.name}'")
    return records


def named(records: Iterable[Record], name: str) -> list[Record]:
    return [record for record in records if record.turn.name == name]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)
