# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import math
from dataclasses import dataclass

import pytest

from aikido_torch.trace.analyze._detect import Slow
from aikido_torch.trace.analyze._sentences import evidence_of, nothing_seen, too_short

SLOW = Slow(0, 0.03, 0.045, 0.015, (0, 1, 2), 0.09)


@dataclass
class Loss:
    rank: int
    cause: str = "compute"
    part: str | None = None
    pattern: str = "steady"
    peer: int | None = None
    stage: int | None = None
    slow: Slow = SLOW


def test_several_ranks_are_named_in_one_sentence():
    assert evidence_of([Loss(4), Loss(5), Loss(6)], 5) == (
        "Ranks 4, 5 and 6 worked 45 ms on their own in 3 of 5 steps, the others 15 ms, "
        "before they made their last call."
    )


def test_some_of_many_ranks_are_named_and_the_others_counted():
    assert evidence_of([Loss(rank) for rank in range(12)], 5).startswith(
        "Ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more worked"
    )


@pytest.mark.parametrize(
    ("part", "text"),
    [("backward", "mostly in the backward."), ("loop", "in the loop's own code.")],
)
def test_the_part_of_the_step_is_named(part, text):
    assert evidence_of([Loss(1, part=part)], 5).endswith(text)


def test_two_causes_have_two_sentences():
    stopped = Loss(2, cause="host stopped", part="stopped")
    text = evidence_of([Loss(1), stopped], 5)
    assert text.startswith("Rank 1 worked")
    assert "Nothing of rank 2 ran" in text


def test_a_window_that_is_too_short_says_how_long_it_must_be():
    assert too_short(5, 0.1, 0.04) == (
        "5 steps are too few for the noise of these ranks: a rank has to lose 40 ms "
        "(40%) of each step to be seen. A loss of 20% takes about 20 steps."
    )
    assert too_short(1, 0.1, math.inf) == (
        "1 step is too few to tell a late rank from noise; trace at least 10 steps."
    )


def test_a_window_without_late_ranks_says_the_smallest_visible_loss():
    assert nothing_seen(5, 0.1, 0.015).endswith(
        "A loss of 15 ms in each of the 5 steps would have been seen."
    )
