# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Stage of a job, by the ratio of transient to reliable members.

The three stages and the thresholds 1 and 15 are those of AgileML (A. Harlap et al.,
"Proteus: agile ML elasticity through tiered reliability in dynamic resource markets",
EuroSys 2017). Everything here is pure: equal inputs give equal decisions on each
member.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

from aikido_torch.errors import ConfigError

__all__ = ["Role", "Stage", "StageDecision", "Thresholds", "next_stage", "trains"]

RELIABLE, TRANSIENT = "reliable", "transient"
Role = str  # RELIABLE or TRANSIENT


class Stage(IntEnum):
    """Where the shards of the state are.

    | stage | owners of shards | reliable members |
    |---|---|---|
    | 1 | reliable members | own and train |
    | 2 | transient members | hold the background copy and train |
    | 3 | transient members | hold the background copy only |

    ```
    1 --(ratio > second)--> 2 --(ratio > third)--> 3
    3 --(ratio <= third * (1 - margin))--> 2 --(ratio <= second * (1 - margin))--> 1
    ```
    """

    RELIABLE_OWNERS = 1
    TRANSIENT_OWNERS = 2
    COPY_ONLY = 3


@dataclass(frozen=True)
class Thresholds:
    """Ratios of transient to reliable members at which the stage changes.

    Args:
        second: stage 2 begins above this ratio.
        third: stage 3 begins above this ratio.
        margin: hysteresis, as a part of the threshold, from 0 to below 1. A stage ends
            when the ratio falls to `threshold * (1 - margin)` or below.

    Raises:
        ConfigError: a value is out of range.
    """

    second: float = 1.0
    third: float = 15.0
    margin: float = 0.25

    def __post_init__(self) -> None:
        for name in ("second", "third", "margin"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0:
                raise ConfigError(
                    f"Thresholds: {name} is {value!r}; it takes a number from 0 on."
                )
        if not 0 < self.second < self.third:
            raise ConfigError(
                f"Thresholds: second is {self.second} and third is {self.third}; "
                "second must be above 0 and below third."
            )
        if self.margin >= 1:
            raise ConfigError(
                f"Thresholds: margin is {self.margin}; it takes a part of a threshold, "
                "from 0 to below 1."
            )

    def floor_of(self, stage: Stage) -> float:
        """Ratio above which `stage` begins; stage 1 begins at any ratio."""
        return {1: -math.inf, 2: self.second, 3: self.third}[stage]


@dataclass(frozen=True)
class StageDecision:
    """Stage from the next boundary on.

    Attributes:
        stage: the stage.
        is_change: True if the stage was another one.
        reason: one sentence, for the log.
    """

    stage: Stage
    is_change: bool
    reason: str


def next_stage(
    present: Stage,
    *,
    reliable: int,
    transient: int,
    thresholds: Thresholds = Thresholds(),
) -> StageDecision:
    """Stage for a job with so many members.

    The decision depends on the present stage, so that a ratio beside a threshold does
    not change the stage again and again. The stage may change by two at once. Without a
    transient member the stage is 1.

    Args:
        present: stage until now.
        reliable, transient: number of members of each role.
        thresholds: ratios at which the stage changes.

    Raises:
        ConfigError: there is no reliable member, or a number is negative.
    """
    check_members(reliable, transient)
    ratio = transient / reliable
    stage = Stage.RELIABLE_OWNERS
    for higher in (Stage.TRANSIENT_OWNERS, Stage.COPY_ONLY):
        floor = thresholds.floor_of(higher)
        if present >= higher:
            floor *= 1 - thresholds.margin
        if transient and ratio > floor:
            stage = higher
    members = f"{transient} transient to {reliable} reliable members"
    if stage == present:
        reason = f"stage {stage} stays: {members}, ratio {ratio:.3g}"
    elif stage > present:
        floor = thresholds.floor_of(stage)
        reason = f"stage {stage}: {members}, ratio {ratio:.3g} is above {floor:.3g}"
    elif not transient:
        reason = f"stage {stage}: there is no transient member"
    else:
        floor = thresholds.floor_of(Stage(stage + 1)) * (1 - thresholds.margin)
        reason = f"stage {stage}: {members}, ratio {ratio:.3g} is not above {floor:.3g}"
    return StageDecision(stage, stage != present, reason)


def trains(stage: Stage, role: Role) -> bool:
    """True if members of this role compute gradients in this stage."""
    return not (stage == Stage.COPY_ONLY and role == RELIABLE)


def check_members(reliable: int, transient: int) -> None:
    """Checks the numbers of members.

    Raises:
        ConfigError: there is no reliable member, or a number is negative.
    """
    if reliable < 0 or transient < 0:
        raise ConfigError(
            f"elastic: {reliable} reliable and {transient} transient members; a number "
            "of members is not negative."
        )
    if reliable == 0:
        raise ConfigError(
            f"elastic: the job has {transient} transient members and no reliable "
            "member, so that nobody can decide about membership. Start one member at "
            'least with role="reliable".'
        )
