# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import re

import pytest

from aikido_torch.ddp._every import Every
from aikido_torch.errors import ConfigError


def walk(every, n, last, is_behind, jumps):
    """The steps at which a rank meets the others; `jumps` are the steps of each
    catch-up.
    """
    met, steps = [], 0
    for jump in jumps:
        every.on_catch_up()
        steps = max(steps, min(steps + jump, every.limit(steps)))
        if steps >= last:
            break
        if not is_behind and every.is_due(n, steps):
            met.append(steps)
        every.on_backward()
        steps += 1
        if is_behind and every.is_due(n, steps):
            met.append(steps)
    return met


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("n", [1, 3, 10])
def test_a_rank_that_goes_past_steps_meets_the_others_at_each_meeting_step(
    is_behind, n
):
    in_time = walk(Every(), n, 40, is_behind, [0] * 41)
    end = 40 if is_behind else 39
    assert in_time == list(range(n, end + 1, n))
    for first in range(1, 12):  # no rank is skipped in the first steps
        jumps = [0] * first + [100] * 41
        assert walk(Every(), n, 40, is_behind, jumps) == in_time


def test_a_rank_may_go_on_from_a_meeting_step_that_is_done():
    every = Every()
    assert every.limit(7) > 10**9  # the loop has not called every()
    every.on_catch_up()
    assert not every.is_due(10, 8)
    assert every.limit(8) == 10
    assert every.limit(10) == 10
    assert every.is_due(10, 10)
    assert every.limit(10) == 20
    assert every.is_due(10, 10)  # a second call in the same step


def test_the_nearest_of_several_meeting_steps_is_the_limit():
    every = Every()
    for n in (4, 6):
        every.is_due(n, 1)
    assert [every.limit(steps) for steps in (1, 5, 7, 9)] == [4, 6, 8, 12]
    every.on_backward()
    every.is_due(6, 8)
    assert every.limit(9) == 11


def test_a_rank_that_a_copy_took_past_a_meeting_step_meets_once():
    every = Every()
    every.is_due(10, 8)
    assert every.is_due(10, 35)
    assert not every.is_due(10, 36)


@pytest.mark.parametrize("n", [0, -1, 2.0, True, None, "3"])
def test_what_is_no_number_of_steps_is_refused(n):
    with pytest.raises(ConfigError, match=re.escape(f"n is {n!r}")):
        Every().is_due(n, 1)
