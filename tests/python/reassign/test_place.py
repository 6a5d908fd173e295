# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.reassign._place import LoopPlace


def test_epochs_follow_each_other():
    place = LoopPlace(3)
    now = 0
    for epoch in range(3):
        place.begin(now)
        assert (place.epoch, place.step) == (epoch, 0)
        for step in range(3):
            assert list(place.move_to(now)) == []
            assert (place.step, place.is_at_end) == (step, False)
            now += 1
            place.pass_step()
        assert place.is_at_end


def test_missed_steps_are_told():
    place = LoopPlace(5)
    place.begin(0)
    assert list(place.move_to(3)) == [0, 1, 2]
    assert place.step == 3
    place.pass_step()
    assert list(place.move_to(4)) == []


def test_a_rank_that_missed_the_end_of_an_epoch_begins_the_next_one_later():
    place = LoopPlace(4)
    place.begin(0)
    place.move_to(2)
    place.pass_step()
    assert list(place.move_to(6)) == [3]
    assert place.is_at_end
    place.begin(6)
    assert (place.epoch, list(place.move_to(6)), place.step) == (1, [0, 1], 2)


def test_a_whole_epoch_can_be_missed():
    place = LoopPlace(2)
    place.begin(0)
    assert list(place.move_to(5)) == [0, 1]
    place.begin(5)
    assert list(place.move_to(5)) == [0, 1]
    assert place.is_at_end
    place.begin(5)
    assert (place.epoch, list(place.move_to(5)), place.step) == (2, [0], 1)


def test_an_epoch_that_is_left_early_ends_there():
    place = LoopPlace(5)
    place.begin(0)
    place.pass_step()
    place.begin(2)  # the loop has left it after step 1
    assert (place.epoch, list(place.move_to(2)), place.step) == (1, [], 0)


def test_an_epoch_that_is_set_comes_next():
    place = LoopPlace(2)
    place.set_epoch(4)
    assert place.epoch == 4
    place.begin(0)
    place.move_to(2)
    place.set_epoch(4)
    place.begin(2)
    assert (place.epoch, place.step) == (4, 0)
    place.move_to(4)
    place.begin(4)
    assert place.epoch == 5


@pytest.mark.parametrize("sets", [True, False])
def test_a_resumed_epoch_goes_on(sets):
    place = LoopPlace(5)
    place.begin(0)
    for now in range(1, 4):
        place.pass_step()
        place.move_to(now)
    assert place.state(3) == (0, 3)
    other = LoopPlace(5)
    other.resume(*place.state(3))
    assert other.state(0) == (0, 3)
    if sets:
        other.set_epoch(0)
    other.begin(0)  # a new training counts from 0
    assert (other.epoch, list(other.move_to(0)), other.step) == (0, [], 3)
    assert list(other.move_to(1)) == [3]


def test_another_epoch_may_begin_after_a_resumed_one_was_loaded():
    place = LoopPlace(5)
    place.resume(2, 3)
    place.set_epoch(7)
    place.begin(0)
    assert (place.epoch, place.step) == (7, 0)


def test_the_state_within_a_step_counts_the_steps_that_have_passed():
    place = LoopPlace(5)
    place.begin(10)
    assert place.state(12) == (0, 2)
    assert place.state(17) == (0, 5)


def test_the_end_of_an_epoch_may_become_known_within_it():
    place = LoopPlace(100)
    place.begin(0)
    place.set_end(100)
    place.move_to(2)
    assert not place.is_at_end
    place.set_end(3)
    assert place.move_to(5) == range(2, 3)
    assert place.is_at_end
    place.begin(5)
    place.set_end(100)
    assert place.steps_before(5) == 2
