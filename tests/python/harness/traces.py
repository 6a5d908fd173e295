# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Dumps made by hand."""

from aikido_torch.trace import Clock, Dump, Kind, Span

MS = 1_000_000


def span(kind: Kind, begin: float, end: float, **fields: int) -> Span:
    """Times in ms; what is not named is 0, and -1 where there may be none."""
    values = dict.fromkeys(Span._fields, 0) | {"step": -1, "peer": -1}
    values |= {"kind": int(kind), "begin_ns": round(begin * MS)}
    return Span(**(values | {"end_ns": round(end * MS)} | fields))


def dump(rank: int, spans: list[Span], **fields: object) -> Dump:
    """Of a job of four ranks."""
    values: dict[str, object] = {
        "size": 4,
        "job": "a job",
        "names": ["default", "data", "forward", "backward", "optimizer"],
        "operations": {1: "all_reduce"},
        "clock": Clock(),
    }
    return Dump(rank=rank, spans=spans, **(values | fields))
