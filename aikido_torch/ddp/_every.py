# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Steps at which all ranks do more than train. Pure.

Note [meeting steps]
A loop logs, evaluates or saves in every n-th step, often with collectives. A late rank
that `catch_up` brings past such a step never calls them, and the others wait for it. So
`catch_up` stops before each meeting step. The distance depends on the place where the
loop calls `every`:

```text
catch_up, every, backward     every comes before the backward: catch_up may end at
                              step n, and the call of every follows
catch_up, backward, every     every comes after the backward: the rank must do the
                              step before n itself, so catch_up ends at step n - 1
```
"""

import sys
from dataclasses import dataclass

from aikido_torch.errors import ConfigError

__all__ = ["Every"]


@dataclass
class _Meeting:
    """Knowledge about the meetings in every n-th step."""

    asked_at: int  # Number of steps at the last call of `every(n)`.
    is_behind_backward: bool = False


class Every:
    """The meeting steps of one handle. For the training thread only."""

    def __init__(self) -> None:
        self._meetings: dict[int, _Meeting] = {}
        self._is_behind_backward = False

    def on_catch_up(self) -> None:
        """`catch_up` begins."""
        self._is_behind_backward = False

    def on_backward(self) -> None:
        """A backward has begun."""
        self._is_behind_backward = True

    def is_due(self, n: int, steps: int) -> bool:
        """True if a rank that has done `steps` steps is at a meeting step.

        It is also true if a copied state brought the rank past a meeting step since the
        last call.

        Args:
            n: distance of meeting steps, at least 1.
            steps: number of optimizer steps that this rank has done.

        Raises:
            ConfigError: n is no whole number, or below 1.
        """
        if type(n) is not int or n < 1:
            raise ConfigError(
                f"every: n is {n!r}; it takes a whole number of steps, at least 1."
            )
        meeting = self._meetings.setdefault(n, _Meeting(asked_at=steps))
        meeting.is_behind_backward |= self._is_behind_backward
        was_passed = steps // n > meeting.asked_at // n
        meeting.asked_at = steps
        return was_passed or (steps > 0 and steps % n == 0)

    def limit(self, steps: int) -> int:
        """The step up to which `catch_up` may go from `steps`."""
        if not self._meetings:
            return _ANY
        return min(_limit(n, m, steps) for n, m in self._meetings.items())


_ANY = sys.maxsize


def _limit(n: int, meeting: _Meeting, steps: int) -> int:
    last = steps // n * n
    if meeting.is_behind_backward:
        return last + n - 1
    is_open = steps == last and meeting.asked_at < steps
    return last if is_open else last + n
