# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Evaluation of traces for backups: which primaries they replaced, and how often."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from aikido_torch.trace.record._dump import Dump
from aikido_torch.trace.record._spans import Kind, SpanOutcome

__all__ = ["BackupSummary", "backups_of"]

# Name and members of the group, and the number of the call in the group.
_Call = tuple[tuple[str, tuple[int, ...]], int]
_HAVE_A_RESULT = (SpanOutcome.COMPLETE, SpanOutcome.SKIPPED)


@dataclass(frozen=True)
class BackupSummary:
    """Number of calls in which a backup replaced a primary, among calls with a result.

    A call is counted once, even if several ranks traced it. Its result has shards,
    which may differ: a call in which a backup replaced the primary for one part, and no
    rank for another part, counts in both.

    Attributes:
        primary: the primary whose data shard it is.
        backup: the backup that replaced it; None if no backup did in any call, and then
            the numbers of the backup are 0.
        num_calls: calls in which the backup replaced the primary.
        num_steps: training steps of these calls.
        num_bytes: bytes of results with the backup's contribution.
        num_own: calls whose result has the primary's own contribution in all parts.
        num_without: calls with a part of the result that lacks this data shard.
        num_all: calls in which the rank was a primary.
    """

    primary: int
    backup: int | None
    num_calls: int
    num_steps: int
    num_bytes: int
    num_own: int
    num_without: int
    num_all: int


def backups_of(dumps: Iterable[Dump]) -> list[BackupSummary]:
    """Summaries by primary and backup, both ascending; empty if there were no backups.

    All ranks that traced a call recorded the same. Calls of groups with unknown members
    are excluded.
    """
    primaries: dict[_Call, tuple[int, ...]] = {}
    steps: dict[_Call, int] = {}
    holes: defaultdict[_Call, dict[tuple[int, int | None], int]] = defaultdict(dict)
    for dump in dumps:
        groups = dump.groups()
        for span in dump.spans:
            if span.kind not in (Kind.OPERATION, Kind.HOLE):
                continue
            group = groups[span.name]
            call = group, span.number
            if span.kind == Kind.HOLE:
                primary = dump.primary_of(span)
                is_filled = span.outcome == SpanOutcome.COMPLETE
                if primary is not None and (span.peer >= 0 or not is_filled):
                    backup = span.peer if is_filled else None
                    holes[call][primary, backup] = span.bytes
            elif span.outcome in _HAVE_A_RESULT:
                primaries[call] = group[1][: span.shard]
                steps[call] = span.step
    return _counted(primaries, steps, holes)


def _counted(
    primaries: dict[_Call, tuple[int, ...]],
    steps: dict[_Call, int],
    holes: dict[_Call, dict[tuple[int, int | None], int]],
) -> list[BackupSummary]:
    num_all: Counter[int] = Counter()
    num_own: Counter[int] = Counter()
    num_without: Counter[int] = Counter()
    calls: defaultdict[tuple[int, int], list[_Call]] = defaultdict(list)
    num_bytes: Counter[tuple[int, int]] = Counter()
    for call, ranks in primaries.items():
        of_call = holes.get(call, {})
        num_all.update(ranks)
        num_own.update(set(ranks) - {primary for primary, _ in of_call})
        for (primary, backup), size in of_call.items():
            if backup is None:
                num_without[primary] += 1
            else:
                calls[primary, backup].append(call)
                num_bytes[primary, backup] += size
    found = []
    for primary in sorted(num_all):
        backups: list[int | None] = [b for p, b in sorted(calls) if p == primary]
        for backup in backups or [None]:
            those = [] if backup is None else calls[primary, backup]
            size = 0 if backup is None else num_bytes[primary, backup]
            found.append(
                BackupSummary(
                    primary=primary,
                    backup=backup,
                    num_calls=len(those),
                    num_steps=len({steps[call] for call in those}),
                    num_bytes=size,
                    num_own=num_own[primary],
                    num_without=num_without[primary],
                    num_all=num_all[primary],
                )
            )
    return found
