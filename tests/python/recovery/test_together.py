# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import gc

import pytest

from aikido_torch.recovery._together import ANY_STEP, Together


class Model:
    """A handle that goes as far as it may."""

    def __init__(self, together):
        self.together, self.steps, self.held = together, 0, 0
        together.add(self)

    def _steps_to_take(self):
        return self.held

    def step(self, count=1):
        for _ in range(count):
            self.steps += 1
            self.together.on_step(self, is_own=True)

    def catch_up(self):
        goal = self.together.begin(self)
        count = min(self.held, goal - self.steps)
        for _ in range(count):
            self.held -= 1
            self.steps += 1
            self.together.on_step(self, is_own=False)
        return count


def pair(paces=(1, 1), iterations=4):
    together = Together()
    models = [Model(together) for _ in paces]
    for _ in range(iterations):
        assert [model.catch_up() for model in models] == [0] * len(models)
        for model, pace in zip(models, paces, strict=True):
            model.step(pace)
    return models


@pytest.mark.parametrize(
    ("paces", "held", "ups"),
    [
        ((1, 1), (10, 9), (9, 9)),
        ((1, 1), (3, 3), (3, 3)),
        ((1, 1), (1, 0), (0, 0)),
        ((5, 1), (14, 3), (10, 2)),
        ((2, 3, 1), (8, 7, 9), (4, 6, 2)),
    ],
)
def test_all_go_on_by_the_same_number_of_iterations(paces, held, ups):
    models = pair(paces)
    for model, count in zip(models, held, strict=True):
        model.held = count
    assert tuple(model.catch_up() for model in models) == ups
    # Steps that others do meanwhile belong to the next iteration, without own steps.
    for model, pace in zip(models, paces, strict=True):
        model.held += pace
    again = [model.catch_up() for model in models]
    counts = {up // pace for up, pace in zip(again, paces, strict=True)}
    assert len(counts) == 1
    assert counts.pop() > 0


def test_what_comes_between_two_calls_is_left_for_the_next_iteration():
    first, second = pair()
    first.held, second.held = 2, 2
    assert first.catch_up() == 2
    second.held += 1
    assert second.catch_up() == 2


def test_a_model_that_is_alone_goes_as_far_as_it_can():
    (model,) = pair(paces=(1,))
    model.held = 7
    assert model.catch_up() == 7


def test_models_without_a_steady_pace_go_on_alone():
    first, second = pair()
    for count in (1, 2, 1, 3):
        assert (first.catch_up(), second.catch_up()) == (0, 0)
        first.step()
        second.step(count)
    first.held, second.held = 5, 2
    assert (first.catch_up(), second.catch_up()) == (5, 2)


def test_a_model_that_is_not_stepped_any_more_holds_nobody_up():
    first, _ = pair()
    for _ in range(3):
        first.catch_up()
        first.step()
    first.held = 3
    assert first.catch_up() == 3


def test_a_model_that_is_gone_holds_nobody_up():
    first, second = pair()
    first.held = 3
    del second
    gc.collect()
    assert first.catch_up() == 3
    assert Together().begin(first) == ANY_STEP


def test_before_the_pace_is_known_each_goes_on_alone():
    first, second = pair(iterations=1)
    first.held, second.held = 5, 2
    assert (first.catch_up(), second.catch_up()) == (5, 2)
