# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Verdict on a few steps: which ranks made the others wait, for which cause, and since
when.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Culprit", "Verdict"]

Cause = Literal[
    "compute",
    "input",
    "loop",
    "network in",
    "network out",
    "network",
    "host stopped",
    "too short",
    "none",
]
Pattern = Literal["steady", "drifting", "transient", "rotating", "none"]
Part = Literal[
    "forward", "backward", "optimizer", "input", "loop", "communication", "stopped"
]


@dataclass(frozen=True)
class Culprit:
    """A rank that made the others wait.

    Attributes:
        rank: rank of the job; for a link between two ranks, the sender.
        cause: as in `Verdict`.
        part: the part of the step that took longer; None if the parts were not recorded
            (`trace.watch`). "loop" is the user's own code between the parts.
        lost_s: seconds above the fastest half of the ranks, the median of the steps in
            which the rank was late.
        share: share of the losses of all culprits of the verdict; shares add up to 1.
        num_steps: steps in which the rank was late.
        peer: for a link between two ranks, the receiver.
        stage: in a pipeline, the slow stage; None if the loss belongs to no stage.
    """

    rank: int
    cause: Cause
    part: Part | None
    lost_s: float
    share: float
    num_steps: int
    peer: int | None = None
    stage: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Result of the search for ranks that made the others wait in some steps.

    Attributes:
        cause: cause of the culprit that lost most. "loop" is the loop's own code,
            between input, forward, backward and optimizer. "network" is a link between
            two ranks whose slow end is unknown, because neither has another link in
            that direction. "none": no rank loses a fifth of a step in most steps. "too
            short": the window is too short to decide.
        rank: the culprit; None if there are several, if it moves from rank to rank, or
            if it is a link.
        pattern: "steady" in most steps, "drifting" if the loss also grows or falls,
            "transient" in few steps, "rotating" from rank to rank.
        lost_s: seconds of a step that the largest culprit lost.
        first_step: first step of the window.
        last_step: last step of the window.
        evidence: one or two sentences.
        culprits: all culprits, the largest loss first.
        visible_s: steady loss of one rank that 99 of 100 such windows show; infinite if
            the window is too short to estimate its noise.
    """

    cause: Cause
    rank: int | None
    pattern: Pattern
    lost_s: float
    first_step: int
    last_step: int
    evidence: str
    culprits: tuple[Culprit, ...] = ()
    visible_s: float = float("inf")

    @property
    def has_culprit(self) -> bool:
        """True if it names a culprit: neither "none" nor "too short"."""
        return self.cause not in ("none", "too short")

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of all culprits, ascending, without those of links."""
        return tuple(sorted({c.rank for c in self.culprits if c.peer is None}))

    def to_json(self) -> dict[str, Any]:
        """JSON values; `of_json` is the inverse."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Verdict":
        """The verdict from `to_json`; verdicts of older versions have no culprits."""
        culprits: Iterable[Mapping[str, Any]] = values.get("culprits", ())
        return cls(
            **{**values, "culprits": tuple(Culprit(**culprit) for culprit in culprits)}
        )
