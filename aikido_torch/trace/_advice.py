# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What verdicts say of ranks, as the straggler policies take it. Pure."""

from collections.abc import Iterable
from typing import Literal

from aikido_torch.trace._verdict import Cause, Verdict

__all__ = ["Memory", "advice_of"]

Advice = Literal["none", "caller", "link"]

# A rank without shards uses its link for less, which may look well then: what is said
# of a link holds for so many verdicts that do not name it.
_LINK_KEPT = 10


def advice_of(verdicts: Iterable[Verdict]) -> dict[int, Advice]:
    """What verdicts say of the ranks that they name, the last of each rank.

    Only what was seen in most steps is said: "link" of a rank whose network is slow,
    "caller" of one that computes or waits for its data. All culprits count.
    """
    said: dict[int, Advice] = {}
    for verdict in verdicts:
        if verdict.pattern not in ("steady", "drifting"):
            continue
        for rank, cause in _named(verdict):
            if cause in ("network in", "network out"):
                said[rank] = "link"
            elif cause in ("compute", "input", "loop"):
                said[rank] = "caller"
    return said


def _named(verdict: Verdict) -> list[tuple[int, Cause]]:
    """Ranks with the cause of their largest loss."""
    found: dict[int, Cause] = {}
    for culprit in verdict.culprits:
        if culprit.peer is None:
            found.setdefault(culprit.rank, culprit.cause)
    if not verdict.culprits and verdict.rank is not None:
        found[verdict.rank] = verdict.cause
    return list(found.items())


class Memory:
    """What was said of ranks, from verdict to verdict. Pure."""

    def __init__(self) -> None:
        self._links: dict[int, int] = {}  # verdicts since it was named, by rank

    def add(self, verdict: Verdict) -> dict[int, Advice]:
        """What is to be said after the next verdict."""
        new = advice_of([verdict])
        self._links = {
            rank: age + 1
            for rank, age in self._links.items()
            if age + 1 < _LINK_KEPT and rank not in new
        }
        self._links |= {rank: 0 for rank, advice in new.items() if advice == "link"}
        links: dict[int, Advice] = dict.fromkeys(self._links, "link")
        return links | new
