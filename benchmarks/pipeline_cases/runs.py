# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the ranks of a case; collects their observations of each run.

For the main thread.
"""

import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from aikido_torch import _C, pipeline
from benchmarks.lab import Lab, Link, Program
from benchmarks.launch import RanksFailedError
from benchmarks.pipeline_cases import layers
from benchmarks.pipeline_cases.layers import Spec
from benchmarks.pipeline_cases.plan import PLAN_FILE, Plan, Run, to_json
from benchmarks.pipeline_cases.records import Record
from benchmarks.straggler_cases.case import CaseError, Context
from benchmarks.straggler_cases.runs import first_line

HOSTS = 4
MBIT = 25.0
# At that rate 50 ms are less than three segments of 64 KiB, and several senders into
# one downlink would lose many of them.
QUEUE_MS = 250.0
PROGRAM = Path(__file__).resolve().with_name("rank.py")


def make_lab(mbit: float = MBIT, queue_ms: float = QUEUE_MS) -> Lab:
    link = Link(up_mbit=mbit, down_mbit=mbit, queue_ms=queue_ms)
    return Lab([link] * HOSTS)


def bandwidth_of(lab: Lab) -> float:
    """Bytes per second of a TCP stream from one host to another."""
    pairs = [(host, (host + 1) % HOSTS) for host in range(HOSTS)]
    found = [lab.goodput_mbit(*pair) for pair in pairs]
    return statistics.median(found) * 1e6 / 8


def profile_of(specs: Sequence[Spec], *, repeats: int = 5) -> _C.Profile:
    """Profile from the profiler on this machine, with one thread as ranks have."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return pipeline.profile_model(
            layers.model_of(specs),
            layers.sample(),
            repeats=repeats,
            warm_up=1,
            progress=False,
        )
    finally:
        torch.set_num_threads(threads)


def run(
    lab: Lab,
    models: dict[str, Sequence[Spec]],
    runs: Sequence[tuple[str, Run]],
    context: Context,
    *,
    limit_s: float,
) -> list[Record]:
    """Runs everything with one set of ranks.

    Raises CaseError with one sentence if a rank failed.
    """
    records = [Record(one) for _, one in runs]
    failed: list[str] = []
    usual = lab.links

    def on_event(_: int, event: dict[str, Any]) -> None:
        if "failed" in event:
            failed.append(f"rank {event['rank']}: {event['failed']}")
        elif "links" in event:
            for host, mbit in runs[event["links"]][1].links.items():
                lab.change(host, up_mbit=mbit, down_mbit=mbit)
        elif "ended" in event:
            for host in runs[event["ended"]][1].links:
                link = usual[host]
                lab.change(host, up_mbit=link.up_mbit, down_mbit=link.down_mbit)
            context.on_progress((event["ended"] + 1) / len(runs))

    fields = {name: [vars(spec) for spec in specs] for name, specs in models.items()}
    with tempfile.TemporaryDirectory() as folder:
        text = to_json(Plan(layers=fields, runs=list(runs)))
        Path(folder, PLAN_FILE).write_text(text)
        try:
            lab.run(
                Program(PROGRAM, (json.dumps({"folder": folder}),)),
                deadline_s=limit_s,
                on_event=on_event,
            )
        except RanksFailedError as error:
            raise CaseError(failed[0] if failed else first_line(str(error))) from error
        for file in Path(folder).glob("*.jsonl"):
            for line in file.read_text().splitlines():
                seen = json.loads(line)
                records[seen.pop("run")].by_rank[int(file.stem)] = seen
    for record in records:
        context.on_record(record.facts())
    return records


def named(records: Sequence[Record], name: str) -> list[Record]:
    return [record for record in records if record.run.name == name]
