# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Traces as torch's flight recorder dumps them, for its own tool to read.

`python -m torch.distributed.flight_recorder.fr_trace FOLDER -p PREFIX` then says which
ranks made which calls. A trace has the bytes of a call and no shape or dtype: a tensor
is shown as so many bytes.
"""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aikido_torch.trace._dump import Dump, check_together, write_file
from aikido_torch.trace._spans import Kind, Outcome, Span

__all__ = ["write_flight_recorder"]

# Of the format; that of torch 2.11 to 2.15.
_VERSION = "2.10"


def write_flight_recorder(
    folder: str | Path, dumps: Iterable[Dump], *, prefix: str = "aikido_"
) -> list[Path]:
    """Writes one file for each rank, named by the prefix and the rank.

    Args:
        folder: to write to.
        dumps: of ranks of one job.
        prefix: of the names.

    Returns:
        The files.

    Raises:
        ConfigError: the dumps do not belong together, or cannot be written there.
    """
    dumps = list(dumps)
    check_together(dumps)
    written = []
    for dump in dumps:
        path = Path(folder, f"{prefix}{dump.rank}")
        # Plain values only: whoever reads it runs nothing of ours.
        write_file(path, pickle.dumps(_as_torch_dumps(dump)))
        written.append(path)
    return written


def _as_torch_dumps(dump: Dump) -> dict[str, Any]:
    calls = sorted(s for s in dump.spans if s.kind == Kind.OPERATION)
    groups = sorted({dump.names[s.name] for s in calls})
    ranks = str(list(range(dump.size)))
    return {
        "version": _VERSION,
        "pg_config": {
            group: {"name": group, "desc": "aikido", "ranks": ranks} for group in groups
        },
        "pg_status": {},
        "entries": [_entry(dump, i, span) for i, span in enumerate(calls)],
    }


def _entry(dump: Dump, number: int, span: Span) -> dict[str, Any]:
    sizes = [[span.bytes]]
    return {
        "record_id": number,
        "pg_id": span.name,
        "process_group": (dump.names[span.name], "aikido"),
        "collective_seq_id": span.number,
        "p2p_seq_id": 0,
        "op_id": span.number,
        # The name by which torch's tool knows what must match on all ranks.
        "profiling_name": "nccl:" + dump.operations.get(span.detail, "call"),
        "time_created_ns": span.begin_ns,
        "time_discovered_started_ns": span.begin_ns,
        "time_discovered_completed_ns": span.end_ns,
        "duration_ms": (span.end_ns - span.begin_ns) / 1e6,
        "input_sizes": sizes,
        "input_dtypes": ["Byte"],
        "output_sizes": sizes,
        "output_dtypes": ["Byte"],
        # One that failed began and did not end.
        "state": "started" if span.outcome == Outcome.FAILED else "completed",
        "retired": True,
        "timeout_ms": 0,
        "is_p2p": False,
        "frames": [],
    }
