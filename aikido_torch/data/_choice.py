# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Choice of the data shard that each backup computes. Pure.

Data shard d is the part of the data that primary d computes. The choice depends only on
the outcomes of earlier steps. These are the same on all ranks, so every rank computes
the same choice for every backup.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Lateness", "choose"]

# A primary that was late in one of this many last steps is a suspect.
WINDOW = 16
# Number of steps that are kept: a rank that catches up may skip many steps at once.
_MOST_STEPS = 10_000


def choose(
    step: int,
    late: Sequence[Collection[int]],
    *,
    num_primaries: int,
    num_backups: int,
    out: Collection[int] = (),
    mode: str = "shadow",
) -> dict[int, int]:
    """Returns the data shard of each backup, by rank of the backup.

    The backups get the data shards in this order: first those of excluded primaries.
    Then come those of suspects, sorted by number of late steps, then by the latest late
    step, then by rank. Then the others follow in turn, so that each primary has a
    backup in some of the steps even before any rank was late. No data shard has two
    backups. Excluded backups, which may rejoin, get the remaining data shards. With
    mode="replicate" backup j has data shard j.

    Args:
        step: the step to choose for.
        late: for each of the last steps that count, oldest first, the primaries that
            were missing or stood in for; only the last `WINDOW` are looked at.
        num_primaries, num_backups: primaries are the first ranks, backups the last.
        out: excluded ranks, as known at the beginning of the step before.
        mode: `mode` of the policy.
    """
    ranks = range(num_primaries + num_backups)
    primaries, backups = ranks[:num_primaries], ranks[num_primaries:]
    if mode == "replicate":
        return {backup: backup - num_primaries for backup in backups}
    live = [rank for rank in backups if rank not in out]
    gone = [rank for rank in primaries if rank in out]
    first = gone + [rank for rank in _suspects(late) if rank not in out]
    others = [rank for rank in primaries if rank not in first]
    num_free = len(live) - len(first)
    if num_free > 0:
        begin = step * num_free % len(others)
        others = others[begin:] + others[:begin]
    in_order = [*live, *(rank for rank in backups if rank in out)]
    return dict(zip(in_order, [*first, *others], strict=False))


def _suspects(late: Sequence[Collection[int]]) -> list[int]:
    counts: Counter[int] = Counter()
    latest: dict[int, int] = {}
    for place, ranks in enumerate(late[-WINDOW:]):
        counts.update(set(ranks))
        latest |= dict.fromkeys(ranks, place)
    return sorted(counts, key=lambda rank: (-counts[rank], -latest[rank], rank))


class Lateness:
    """Late ranks and excluded ranks by step, from the outcomes; the same on all ranks.

    Attributes:
        steps: number of steps that have passed, with or without a late rank.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._late: dict[int, tuple[int, ...]] = {}
        self._out: dict[int, tuple[int, ...]] = {}

    def add(self, step: int, late: Iterable[int], out: Iterable[int] = ()) -> None:
        """Adds ranks that were late or excluded in that step."""
        self.steps = max(self.steps, step + 1)
        for known, told in ((self._late, late), (self._out, out)):
            if ranks := {*told, *known.get(step, ())}:
                known[step] = tuple(sorted(ranks))
            for old in [s for s in known if s < self.steps - _MOST_STEPS]:
                del known[old]

    def before(self, end: int) -> list[tuple[int, ...]]:
        """Late ranks of the last `WINDOW` steps before `end`, oldest first."""
        return [self._late.get(step, ()) for step in range(end - WINDOW, end)]

    def out_at(self, step: int) -> tuple[int, ...]:
        """Ranks that were excluded in that step."""
        return self._out.get(step, ())

    def state_dict(self) -> dict[str, Any]:
        return {"late": sorted(self._late.items()), "out": sorted(self._out.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the late and excluded ranks, but not `steps`."""
        self._late = {int(step): tuple(ranks) for step, ranks in state["late"]}
        self._out = {int(step): tuple(ranks) for step, ranks in state.get("out", ())}
