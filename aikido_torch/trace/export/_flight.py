# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Export of traces in the format of torch's flight recorder, for torch's own tool.

`python -m torch.distributed.flight_recorder.fr_trace FOLDER -p PREFIX` then shows which
ranks made which calls. A trace has the bytes of a call but no shape or dtype: a tensor
is shown as one dimension of bytes, and no rank as the root. Calls of groups with
unknown members are excluded.
"""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aikido_torch.trace.record._dump import Dump, check_together, write_file
from aikido_torch.trace.record._spans import Kind, Span, SpanOutcome

__all__ = ["write_flight_recorder"]

# Version of the format in torch 2.11 to 2.15.
_VERSION = "2.10"
# Names of operations in torch's tool.
_NAMES = {"monitored_barrier": "barrier", "sparse all_reduce": "all_reduce"}
_UNDER_WAY = (SpanOutcome.FAILED, SpanOutcome.OPEN)


def write_flight_recorder(
    folder: str | Path, dumps: Iterable[Dump], *, prefix: str = "aikido_"
) -> list[Path]:
    """Writes one file for each rank, named by the prefix and the rank.

    Args:
        folder: folder to write to.
        dumps: traces of ranks of one job.
        prefix: prefix of the file names.

    Returns:
        The files.

    Raises:
        ConfigError: the dumps belong to different jobs, or a file cannot be written.
    """
    dumps = list(dumps)
    check_together(dumps)
    written = []
    for dump in dumps:
        path = Path(folder, f"{prefix}{dump.rank}")
        # Plain values only, so that unpickling runs no code of aikido.
        write_file(path, pickle.dumps(_as_torch_dumps(dump)))
        written.append(path)
    return written


def _as_torch_dumps(dump: Dump) -> dict[str, Any]:
    groups = dump.groups()
    calls = sorted(
        s for s in dump.spans if s.kind == Kind.OPERATION and groups[s.name][1]
    )
    entries = []
    for i, span in enumerate(calls):
        entries.append(_entry(dump, i, span, len(groups[span.name][1])))
    return {
        "version": _VERSION,
        "pg_config": {
            group: {"name": group, "desc": "aikido", "ranks": str(list(members))}
            for group, members in sorted({groups[s.name] for s in calls})
        },
        "pg_status": {},
        "entries": entries,
    }


def _sizes(operation: str, num_bytes: int, size: int) -> tuple[int, int]:
    """Bytes of input and output of a call in a group of `size`."""
    match operation:
        case "all_gather":
            return num_bytes, num_bytes * size
        case "reduce_scatter":  # blocks may differ; they are assumed to be equal
            return num_bytes // size * size, num_bytes // size
    return num_bytes, num_bytes


def _entry(dump: Dump, number: int, span: Span, size: int) -> dict[str, Any]:
    operation = dump.operations.get(span.detail, "call")
    given, got = _sizes(operation, span.bytes, size)
    # A failed call has a begin but no end.
    is_under_way = span.outcome in _UNDER_WAY
    end_ns = None if is_under_way else span.end_ns
    return {
        "record_id": number,
        "pg_id": span.name,
        "process_group": (dump.names[span.name], "aikido"),
        "collective_seq_id": span.number,
        "p2p_seq_id": 0,
        "op_id": span.number,
        # Name by which torch's tool matches the calls of different ranks.
        "profiling_name": "nccl:" + _NAMES.get(operation, operation),
        "time_created_ns": span.begin_ns,
        "time_discovered_started_ns": span.begin_ns,
        "time_discovered_completed_ns": end_ns,
        "duration_ms": (span.end_ns - span.begin_ns) / 1e6,
        "input_sizes": [[given]],
        "input_dtypes": ["Byte"],
        "output_sizes": [[got]],
        "output_dtypes": ["Byte"],
        "state": "started" if is_under_way else "completed",
        "retired": span.outcome != SpanOutcome.OPEN,
        "timeout_ms": 0,
        "is_p2p": False,
        "frames": [],
    }
