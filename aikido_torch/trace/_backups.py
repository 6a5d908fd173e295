# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What traces say of backups: for whom they stood in, and for whom nobody did."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from aikido_torch.trace._dump import Dump
from aikido_torch.trace._spans import Kind, Outcome

__all__ = ["BackupSummary", "backups_of"]

# The name of its group, the members of that, and its number there.
_Call = tuple[tuple[str, tuple[int, ...]], int]
_HAVE_A_RESULT = (Outcome.COMPLETE, Outcome.SKIPPED)


@dataclass(frozen=True)
class BackupSummary:
    """How often a backup stood in for a primary, in calls that have a result.

    A call is counted once, whoever told of it. Its result has shards, which may differ:
    a call in which a backup stood in for a part, and nobody for another, is in both.

    Attributes:
        primary: whose data shard it is.
        backup: who stood in for it; None: nobody in any call, and what is of the backup
            is 0.
        num_calls: in which the backup stood in.
        num_steps: of the user's training, to which those belong.
        num_bytes: of results for which it did.
        num_own: calls whose result has the primary's own contribution in all parts.
        num_without: calls whose result has some part without its data shard.
        num_all: calls in which it was a primary.
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
    """By primary and backup, both ascending; empty where there were no backups.

    Every rank that traced a call tells the same of it. Calls of groups whose members
    are not known are left out.
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
                is_filled = span.outcome == Outcome.COMPLETE
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
