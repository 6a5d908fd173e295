# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Choice between replay and state copy for a rank that is behind. Pure function."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aikido_torch.errors import ConfigError

__all__ = ["CatchUpDecision", "Situation", "StateCopy", "decide"]

Way = Literal["none", "replay", "copy"]
_WHEN = ("fewer_bytes", "always", "never")
# Number of recent own steps whose median duration is the usual duration.
OWN_STEPS = 15
# Bounds of the wait for one rank's state without `timeout_ms`.
_LEAST_S, _MOST_S = 1.0, 30.0


@dataclass(frozen=True, kw_only=True)
class StateCopy:
    """Rule that decides when a rank that is behind copies the state of another rank.

    Attributes:
        when: "fewer_bytes" copies if the state has fewer bytes than the gradients of
            the steps to replay. "never" and "always" hold as long as there is a choice.
            A rank that the others have gone on without and refuse must copy.
        least_bytes: gradients of fewer bytes are replayed under "fewer_bytes", because
            a replay ends before another rank has reached its next step.
        timeout_ms: time to wait for one rank, which answers between two of its steps.
            After that another rank is asked; after that the steps are replayed. None:
            twice the usual time of an own step of this rank, from 1 s to 30 s.

    Raises:
        ConfigError: a value is out of its range; the text has both.
    """

    when: Literal["fewer_bytes", "always", "never"] = "fewer_bytes"
    least_bytes: int = 16 << 20
    timeout_ms: float | None = None

    def __post_init__(self) -> None:
        if self.when not in _WHEN:
            raise ConfigError(
                f"StateCopy: when is {self.when!r}; it takes {', '.join(_WHEN)}."
            )
        if type(self.least_bytes) is not int or self.least_bytes < 0:
            raise ConfigError(
                f"StateCopy: least_bytes is {self.least_bytes!r}; it takes a whole "
                "number, at least 0."
            )
        is_number = type(self.timeout_ms) in (int, float)
        if self.timeout_ms is not None and not (is_number and self.timeout_ms > 0):
            raise ConfigError(
                f"StateCopy: timeout_ms is {self.timeout_ms!r}; it takes a number "
                "above 0, or None."
            )

    def timeout_s(self, own_steps_s: Sequence[float]) -> float:
        """Seconds to wait for the state of one rank.

        Args:
            own_steps_s: seconds that the last own steps of this rank took. The median
                counts, because the step in which this rank was late is longer.
        """
        if self.timeout_ms is not None:
            return self.timeout_ms / 1e3
        usual_s = statistics.median(own_steps_s) if own_steps_s else 0.0
        return min(max(_LEAST_S, 2 * usual_s), _MOST_S)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The facts from which the decision follows.

    Attributes:
        steps_behind: steps that the others have committed and this rank has not
            applied.
        steps_held: the first of those steps. This rank has their results. The other
            ranks keep the results of the remaining steps and send them.
        gradient_bytes: bytes of the gradients of one step.
        state_bytes: bytes of one copy.
        may_copy: True if a copy would be complete, no rank was asked in vain in this
            catch_up, and the other ranks do not wait for this rank.
    """

    steps_behind: int
    steps_held: int
    gradient_bytes: int
    state_bytes: int
    may_copy: bool = True


@dataclass(frozen=True)
class CatchUpDecision:
    """The action to take now.

    Attributes:
        way: "none", "replay" or "copy".
        steps: steps to replay; 0 with the other ways.
        reason: "up_to_date", "never", "always", "cannot_copy", "small", "fewer_bytes"
            (the copy has fewer bytes) or "more_bytes".
    """

    way: Way
    steps: int
    reason: str


def decide(rule: StateCopy, now: Situation) -> CatchUpDecision:
    """Decides whether to replay the missed steps or to copy a later state."""
    if now.steps_behind <= 0:
        return CatchUpDecision("none", 0, "up_to_date")
    replay_bytes = now.steps_behind * now.gradient_bytes
    if not now.may_copy:
        return _replay(now, "cannot_copy")
    if rule.when == "never":
        return _replay(now, "never")
    if rule.when == "always":
        return CatchUpDecision("copy", 0, "always")
    if replay_bytes < rule.least_bytes:
        return _replay(now, "small")
    if now.state_bytes < replay_bytes:
        return CatchUpDecision("copy", 0, "fewer_bytes")
    return _replay(now, "more_bytes")


def _replay(now: Situation, reason: str) -> CatchUpDecision:
    steps = min(now.steps_held, now.steps_behind)
    return CatchUpDecision("replay" if steps > 0 else "none", steps, reason)
