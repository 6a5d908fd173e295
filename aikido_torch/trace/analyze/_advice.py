# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Advice for the straggler policies that follows from verdicts. Pure."""

from collections.abc import Iterable
from typing import Literal

from aikido_torch.trace.analyze._verdict import Cause, Verdict

__all__ = ["Memory", "advice_of"]

Advice = Literal["none", "caller", "link"]

# A rank without shards uses its link less, so the link may look healthy then. So advice
# about a link stays valid for this many verdicts that do not name it.
_LINK_KEPT = 10


def advice_of(verdicts: Iterable[Verdict]) -> dict[int, Advice]:
    """Advice about the ranks that verdicts name; the last verdict on a rank counts.

    Only patterns in most steps give advice: "link" for a rank with a slow network,
    "caller" for a rank that computes or waits for its data for longer. All culprits
    count.
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
    """Advice that is kept from verdict to verdict. Pure."""

    def __init__(self) -> None:
        # By rank: number of verdicts since its link was named.
        self._links: dict[int, int] = {}

    def add(self, verdict: Verdict) -> dict[int, Advice]:
        """The advice after the next verdict."""
        new = advice_of([verdict])
        self._links = {
            rank: age + 1
            for rank, age in self._links.items()
            if age + 1 < _LINK_KEPT and rank not in new
        }
        self._links |= {rank: 0 for rank, advice in new.items() if advice == "link"}
        links: dict[int, Advice] = dict.fromkeys(self._links, "link")
        return links | new
