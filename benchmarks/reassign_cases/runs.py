# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runner of the ranks of a case on this machine; collects their observations.

For the main thread.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.launch import RanksFailedError
from benchmarks.local_ranks import run_ranks
from benchmarks.reassign_cases import plan
from benchmarks.reassign_cases.figures import Record
from benchmarks.reassign_cases.plan import Training
from benchmarks.straggler_cases.case import CaseError, Context
from benchmarks.straggler_cases.runs import first_line

PROGRAM = "reassign_cases/rank.py"
_START_S = 60.0  # imports of the ranks on a busy machine


def run(trainings: Sequence[Training], context: Context) -> list[Record]:
    """Runs all trainings with one set of ranks.

    Raises CaseError with one sentence if a rank failed, or if ranks ended with
    different parameters.
    """
    records = [Record(training) for training in trainings]
    num_ranks = trainings[0].num_ranks

    def on_event(event: dict[str, Any]) -> None:
        number = event.pop("training")
        records[number].by_rank[event.pop("rank")] = event
        context.on_progress((number + 1) / len(trainings))

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, plan.PLAN_FILE).write_text(plan.to_json(trainings))
        try:
            run_ranks(
                PROGRAM,
                json.dumps({"folder": folder}),
                num_ranks=num_ranks,
                limit_s=_START_S + sum(training.limit_s() for training in trainings),
                on_event=on_event,
            )
        except RanksFailedError as error:
            raise CaseError(first_line(str(error))) from error
    for record in records:
        context.on_record(
            {"training": asdict(record.training), "by_rank": record.by_rank}
        )
        record.check()
    return records
