# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Which data shard each backup computes. Pure: what all ranks agree on in, choice out.

Data shard d is the part of the data that primary d computes. Every rank can tell the
choice of every backup, since it follows from the outcomes of earlier steps, which are
the same on all ranks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Lateness", "choose"]

# Steps in which a primary that was late is a suspect.
WINDOW = 16
# Steps that are remembered: a rank may pass over many at once.
_MOST_STEPS = 10_000


def choose(
    step: int,
    late: Sequence[Collection[int]],
    *,
    num_primaries: int,
    num_backups: int,
    members: Collection[int] | None = None,
    mode: str = "shadow",
) -> dict[int, int]:
    """Backup to data shard, for the backups that live.

    First the data shards of primaries that are gone, then those of suspects: who was
    late most often, then latest, then the lower rank. Then the others in turn, so that
    each is covered now and then before anything is known. No data shard has two
    backups. In replicate each backup has that of its own number.

    Args:
        step: that is chosen for.
        late: for each of the last steps that count, oldest first, the primaries that
            were missing or stood in for; only the last `WINDOW` are looked at.
        num_primaries, num_backups: these are the first ranks, those come behind them.
        members: ranks that live; None is all.
        mode: of the policy.
    """
    ranks = range(num_primaries + num_backups)
    alive = set(ranks if members is None else members)
    backups = [rank for rank in ranks[num_primaries:] if rank in alive]
    if mode == "replicate":
        return {backup: backup - num_primaries for backup in backups}
    gone = [rank for rank in ranks[:num_primaries] if rank not in alive]
    first = gone + [rank for rank in _suspects(late) if rank in alive]
    others = [rank for rank in ranks[:num_primaries] if rank not in first]
    num_free = len(backups) - len(first)
    if num_free > 0:
        begin = step * num_free % len(others)
        others = others[begin:] + others[:begin]
    return dict(zip(backups, [*first, *others], strict=False))


def _suspects(late: Sequence[Collection[int]]) -> list[int]:
    counts: Counter[int] = Counter()
    latest: dict[int, int] = {}
    for place, ranks in enumerate(late[-WINDOW:]):
        counts.update(set(ranks))
        latest |= dict.fromkeys(ranks, place)
    return sorted(counts, key=lambda rank: (-counts[rank], -latest[rank], rank))


class Lateness:
    """Who was late in which step, as all ranks find it in the outcomes.

    Attributes:
        steps: that have passed, whether anybody was late in them or not.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._late: dict[int, tuple[int, ...]] = {}

    def add(self, step: int, late: Iterable[int]) -> None:
        """These were late in that step, besides those that are known already."""
        self.steps = max(self.steps, step + 1)
        if ranks := {*late, *self._late.get(step, ())}:
            self._late[step] = tuple(sorted(ranks))
        for old in [s for s in self._late if s < self.steps - _MOST_STEPS]:
            del self._late[old]

    def before(self, end: int) -> list[tuple[int, ...]]:
        """Of the last `WINDOW` steps before `end`, oldest first."""
        return [self._late.get(step, ()) for step in range(end - WINDOW, end)]

    def state_dict(self) -> dict[str, Any]:
        return {"late": sorted(self._late.items())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over who was late; the number of steps is each rank's own."""
        self._late = {int(step): tuple(ranks) for step, ranks in state["late"]}
