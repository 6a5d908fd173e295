# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Steps at which all ranks do the same besides training. Pure.

Note [meeting steps]
A loop logs, evaluates or saves in every n-th step, often with collectives. A late rank
that `catch_up` brings past such a step never calls them, and the others wait for it. So
`catch_up` stops in front of each meeting step. How far in front depends on where the
loop asks:

    catch_up, every, backward     asks before the backward: catch_up may end at step n,
                                  and the question comes next
    catch_up, backward, every     asks behind the backward: the rank has to do the step
                                  before n itself, so catch_up ends at step n - 1
"""

import sys
from dataclasses import dataclass

from aikido_torch.errors import ConfigError

__all__ = ["Every"]


@dataclass
class _Meeting:
    """What is known of the meetings in every n-th step."""

    asked_at: int  # the number of steps at the last question
    is_behind_backward: bool = False


class Every:
    """The meeting steps of one handle. For the thread that trains."""

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
        """Whether a rank with `steps` steps behind it is at a meeting step.

        True as well if it has come past one without being asked, by a copied state.
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
