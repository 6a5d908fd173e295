# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Verdict on a few steps: which ranks made the others wait, by what, and since when."""

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
        rank: of the job; of a link between two ranks, the sender.
        cause: as in `Verdict`.
        part: the part of the step that took longer; None where the parts were not
            recorded (`trace.watch`). "loop" is the user's own code between the parts.
        lost_s: seconds that the rank took more than the fastest half of the ranks, in
            the middle of the steps in which it was late.
        share: of what all culprits of the verdict lost; shares add up to 1.
        num_steps: steps in which the rank was late.
        peer: of a link between two ranks, the receiver.
        stage: of a pipeline, the stage that was slow; None for what is no stage's.
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
    """Which ranks made the others wait in some steps.

    Attributes:
        cause: of the culprit that lost most. "loop" is the loop's own code, between
            input, forward, backward and optimizer. "network" is a link between two
            ranks of which nobody can tell which end is slow, because neither has
            another link in that direction. "none": no rank loses a fifth of a step in
            most steps. "too short": the window cannot tell that.
        rank: the culprit; None if there are several, if it moves from rank to rank, or
            if it is a link.
        pattern: "steady" in most steps, "drifting" if the loss also grows or falls,
            "transient" in few steps, "rotating" from rank to rank.
        lost_s: seconds of a step, of the culprit that lost most.
        first_step: of the window.
        last_step: of the window.
        evidence: one or two sentences.
        culprits: all of them, the largest loss first.
        visible_s: the steady loss of one rank that 99 of 100 such windows show;
            infinite if the window cannot tell its own noise.
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
        """Whether it names anything: neither "none" nor "too short"."""
        return self.cause not in ("none", "too short")

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of all culprits, ascending; without those of a link."""
        return tuple(sorted({c.rank for c in self.culprits if c.peer is None}))

    def to_json(self) -> dict[str, Any]:
        """As values that JSON has; `of_json` is the inverse."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Verdict":
        """The verdict of `to_json`; one without culprits is of an older version."""
        culprits: Iterable[Mapping[str, Any]] = values.get("culprits", ())
        return cls(
            **{**values, "culprits": tuple(Culprit(**culprit) for culprit in culprits)}
        )
