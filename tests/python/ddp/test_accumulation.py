# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.ddp._accumulation import Accumulation
from aikido_torch.errors import ConfigError


def hook(accumulation, step, held_back, given=1):
    for _ in range(held_back):
        accumulation.on_forward(is_held_back=True)
    for _ in range(given):
        accumulation.on_forward(is_held_back=False)
    return accumulation.on_hook(step)


@pytest.mark.parametrize(("told", "held_back"), [(1, 1), (1, 3), (2, 3), (4, 4)])
def test_more_batches_than_were_told_are_an_error_in_the_first_step(told, held_back):
    accumulation = Accumulation(told, first_step=7)
    with pytest.raises(ConfigError, match=rf"batches_per_step={held_back + 1}\)"):
        hook(accumulation, 7, held_back)


def test_steps_as_told_are_not_short():
    for told in (1, 4):
        accumulation = Accumulation(told, first_step=0)
        for step in range(3):
            assert hook(accumulation, step, told - 1) is None
        assert accumulation.missing(0, 3) == 0


def test_a_short_step_has_as_many_batches_as_were_left():
    accumulation = Accumulation(4, first_step=0)
    assert [hook(accumulation, step, n) for step, n in enumerate((3, 3, 1))] == [
        None,
        None,
        2,
    ]
    accumulation.note_short(5, 1)  # reported by another rank
    accumulation.note_short(5, 1)
    assert accumulation.missing(0, 2) == 0
    assert accumulation.missing(0, 3) == 2
    assert accumulation.missing(2, 6) == 2 + 3
    assert accumulation.missing(3, 3) == 0


def test_several_forwards_of_a_batch_count_as_one():
    accumulation = Accumulation(3, first_step=0)
    assert hook(accumulation, 0, 4, given=2) is None
    assert hook(accumulation, 1, 2, given=2) == 2
    # One more forward with other data does not make the step short.
    assert hook(accumulation, 2, 4, given=3) is None
