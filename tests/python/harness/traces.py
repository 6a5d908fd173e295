# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Trace dumps with hand-written spans."""

from aikido_torch.trace.record._dump import Clock, Dump
from aikido_torch.trace.record._spans import Kind, Span, SpanOutcome

MS = 1_000_000


def span(kind: Kind, begin: float, end: float, **fields: int) -> Span:
    """A span with times in ms. Fields not given are 0; step and peer are -1 (none)."""
    values = dict.fromkeys(Span._fields, 0) | {"step": -1, "peer": -1}
    values |= {"kind": int(kind), "begin_ns": round(begin * MS)}
    return Span(**(values | {"end_ns": round(end * MS)} | fields))


def message(
    number: int,
    begin: float,
    end: float,
    chunks: list[tuple[float, float]],
    *,
    priority: int = 0,
    peer: int = 1,
) -> list[Span]:
    """Spans of a sent message, with a chunk of 100 bytes for each (picked, written)."""
    own = {"number": number, "priority": priority, "peer": peer, "detail": 7}
    first_ns = round(chunks[0][0] * MS)
    size = 100 * len(chunks)
    whole = span(Kind.SEND, begin, end, bytes=size, first_ns=first_ns, **own)
    parts = [
        span(Kind.SEND_CHUNK, picked, written, offset=100 * i, bytes=100, **own)
        for i, (picked, written) in enumerate(chunks)
    ]
    return [whole, *parts]


def paused_message() -> list[Span]:
    """A message that pauses from 9 to 20 ms for a more urgent message to rank 2."""
    bulk = message(1, 0, 30, [(1, 4), (4.1, 9), (20, 24), (24.1, 30)])
    return bulk + message(2, 6, 15, [(10, 15)], priority=5, peer=2)


def backed_up_call(
    number: int, *filled: tuple[int, int], skipped: tuple[int, ...] = (), step: int = 0
) -> list[Span]:
    """Spans of a backed-up call of three primaries, with holes of 2 MB each.

    `filled` has pairs of a data shard and the backup that filled its hole.
    """
    own = {"number": number, "step": step, "detail": 1, "bytes": 4_000_000}
    begin, end = 10 * number, 10 * number + 5
    hole = own | {"bytes": 2_000_000}
    return [
        *(
            span(Kind.HOLE, begin, end, shard=shard, peer=backup, **hole)
            for shard, backup in filled
        ),
        *(
            span(
                Kind.HOLE, begin, end, shard=shard, outcome=SpanOutcome.SKIPPED, **hole
            )
            for shard in skipped
        ),
        span(Kind.OPERATION, begin, end, shard=3, **own),
    ]


def staged_rank(
    rank: int,
    *,
    stage: int,
    forward: float,
    backward: float,
    steps: int = 2,
    gap: float = 10,
    sent: str = "",
    planned: float = 0,
) -> Dump:
    """Dump of a rank of a pipeline: runs of 50 ms with two micro-batches each.

    Each run ends with an optimizer step of 1 ms. Two runs are `gap` ms apart.

    Args:
        sent: name of a send after each backward, as "send_activation"; empty: none.
        planned: ms that the plan has for the stage; 0: no plan.
    """
    names = ["pipeline run", f"step stage {stage}"]
    spans = []

    def add(name: str, begin: float, length: float, step: int) -> float:
        if name not in names:
            names.append(name)
        number = names.index(name)
        end = begin + length
        spans.append(span(Kind.SECTION, begin, end, name=number, step=step))
        return end

    for step in range(steps):
        begin = at = step * (50 + gap)
        add("pipeline run", begin, 50, step)
        if planned:
            add(f"planned stage {stage}: {planned * 1e6:.0f} ns", begin, 50, step)
        for micro_batch in range(2):
            place = f"stage {stage} micro-batch {micro_batch}"
            at = add(f"forward {place}", at, forward, step)
            at = add(f"backward {place}", at, backward, step)
            if sent:
                at = add(f"{sent} {place}", at, 0, step)
        add(f"step stage {stage}", at, 1, step)
    return dump(rank, spans, names=names)


def dump(rank: int, spans: list[Span], **fields: object) -> Dump:
    """Dump of one rank of a job of four ranks."""
    values: dict[str, object] = {
        "size": 4,
        "job": "a job",
        "names": ["default", "data", "forward", "backward", "optimizer"],
        "operations": {1: "all_reduce"},
        "clock": Clock(),
    }
    return Dump(rank=rank, spans=spans, **(values | fields))
