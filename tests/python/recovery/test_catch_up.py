# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import copy
import dataclasses
import pickle

import pytest

from aikido_torch import ddp

UP = ddp.CatchUp(
    steps_replayed=2, steps_copied=3, state_copied_from=1, batches_to_skip=20
)


def test_the_result_of_catching_up_says_how_many_steps_and_how():
    assert (UP.steps, UP.steps_replayed, UP.steps_copied) == (5, 2, 3)
    assert (UP.state_copied_from, UP.batches_to_skip) == (1, 20)
    assert repr(UP) == (
        "CatchUp(steps_replayed=2, steps_copied=3, state_copied_from=1, "
        "batches_to_skip=20)"
    )
    assert repr(pickle.loads(pickle.dumps(UP))) == repr(copy.copy(UP)) == repr(UP)
    with pytest.raises(dataclasses.FrozenInstanceError):
        UP.steps_copied = 4


def test_a_loop_adds_the_result_to_its_step():
    step = 10
    step += UP
    assert (step, type(step)) == (15, int)
    assert (UP + 1, 1 + UP, UP + UP, sum([UP, UP])) == (6, 6, 10, 10)
    assert (UP - 1, 7 - UP, UP * 3, 3 * UP) == (4, 2, 15, 15)
    assert (int(UP), list(range(UP))) == (5, [0, 1, 2, 3, 4])
    while (step := step + ddp.CatchUp(steps_copied=1)) < 18:
        pass
    assert step == 18


def test_the_result_compares_as_its_number_of_steps():
    same = ddp.CatchUp(steps_replayed=5)
    assert UP == 5 == UP == same
    assert len({UP, same, 5}) == 1
    assert UP != 4
    assert (UP > 4, UP >= 5, UP < 6, UP <= 4, UP > 4) == (True, True, True, False, True)
    assert max(UP, ddp.CatchUp()) is UP


def test_the_result_is_true_if_the_rank_went_forward():
    assert UP
    assert not ddp.CatchUp()
    assert ddp.CatchUp() == 0


@pytest.mark.parametrize("other", ["5", None])
def test_the_result_does_not_mix_with_texts(other):
    assert other != UP
    with pytest.raises(TypeError):
        UP + other
    with pytest.raises(TypeError):
        assert other > UP
