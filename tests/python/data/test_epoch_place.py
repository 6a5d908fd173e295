# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.data._epoch_place import EpochPlace


def place_of(num_batches=10, batches_per_step=1, lookahead=0):
    return EpochPlace(
        num_batches=num_batches, batches_per_step=batches_per_step, lookahead=lookahead
    )


def test_the_next_epoch_begins_where_a_finished_one_ends():
    place = place_of(10, batches_per_step=4)  # steps of 4, 4 and 2 batches
    place.begin(0, 5)
    place.num_taken = 10
    assert place.take_first_step(1, now=8) == 8
    assert place.take_first_step(1, now=7) == 7  # the loop is not at its end yet
    assert place.take_first_step(1, now=9) == 8  # step 8 is still to be skipped
    place.num_taken = 4
    assert place.take_first_step(1, now=9) == 9  # all ranks left the epoch early


def test_a_given_first_step_holds_for_one_epoch():
    place = place_of()
    place.given_first_step = 7
    assert place.take_first_step(3, now=9) == 7
    assert place.take_first_step(3, now=9) == 9


def test_a_resumed_epoch_begins_after_the_finished_batches():
    place = place_of(10, batches_per_step=4)
    place.on_own_step(3)
    place.given_first_step = 1
    place.resume(6, first_step=20, steps=22)
    assert (place.epoch, place.num_taken, place.own_steps) == (6, 8, 0)
    assert place.take_first_step(6, now=22) == 20
    assert place.take_first_step(7, now=22) == 22  # another epoch is not resumed
    place.begin(6, 20)
    assert place.num_taken == 8
    place.num_taken = 10
    place.begin(7, 23)
    assert place.num_taken == 0
    assert place.take_first_step(7, now=24) == 24


@pytest.mark.parametrize(
    ("step", "numbers"),
    [(4, []), (5, [6, 7, 8, 9]), (6, [10]), (7, [10]), (8, [])],
)
def test_the_loader_is_ahead_of_a_step_by_the_lookahead(step, numbers):
    place = place_of(10, batches_per_step=4, lookahead=5)
    place.begin(0, 5)
    assert list(place.numbers_at(step)) == numbers
    for place.num_taken in range(11):
        assert place.is_at(step) == (place.num_taken in numbers)


def test_batches_are_counted_across_epochs():
    place = place_of(10, batches_per_step=4)
    place.begin(0, 5)
    assert [place.batches_in(5, end) for end in (5, 6, 7, 8, 9, 11)] == [
        *(0, 4, 8, 10, 14, 20)
    ]
    assert place.batches_in(7, 9) == 6


def test_the_last_own_step_counts():
    place = place_of()
    for step in (4, 2):
        place.on_own_step(step)
    assert place.own_steps == 5
