# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from aikido_torch.pipeline.runtime._observe import (
    LiveTimes,
    Observer,
    RankTimes,
    live_times,
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def report(stage, *, forward, backward, sent=(), arrived=()):
    return RankTimes(
        0.0, {stage: forward}, {stage: backward}, dict(sent), dict(arrived)
    )


def test_an_observer_notes_medians_and_moments():
    clock = Clock()
    observer = Observer(clock)
    for begun, ended in [(0, 1), (1, 5), (5, 7)]:
        clock.now = ended
        observer.computed(0, False, begun)
    observer.computed(0, True, 3)
    observer.sends((False, 0, 4))
    there = observer.arrival_of((True, 1, 4))
    clock.now = 9
    there()
    clock.now = 10
    seen = observer.report()
    assert (seen.now, seen.forwards, seen.backwards) == (10, {0: 2}, {0: 4})
    assert (seen.sent, seen.arrived) == ({(False, 0, 4): 7}, {(True, 1, 4): 9})


def test_a_late_arrival_does_not_count_for_the_next_run():
    observer = Observer(Clock())
    there = observer.arrival_of((True, 1, 4))
    observer.begin()
    there()
    assert observer.report().arrived == {}


@pytest.mark.parametrize("apart", [0, 100, -100])
def test_a_link_time_is_half_of_both_ways_independent_of_clocks(apart):
    first = report(
        0,
        forward=1,
        backward=2,
        sent={(False, 0, 0): 1, (False, 0, 1): 2},
        arrived={(True, 1, 0): 12, (True, 1, 1): 20},
    )
    second = report(
        1,
        forward=3,
        backward=4,
        sent={(True, 1, 0): 9 + apart, (True, 1, 1): 15 + apart},
        arrived={(False, 0, 0): 8 + apart, (False, 0, 1): 7 + apart},
    )
    # The fastest message in each direction counts: 5 up and 3 down.
    seen = live_times([first, second], [[0], [1]])
    assert seen == LiveTimes((1, 3), (2, 4), (4,), (1, 1))


def test_the_slowest_pair_and_the_slow_replica_are_reported():
    def up(low, high, at):
        return {(False, 0, low + high): at}

    first = report(
        0, forward=1, backward=2, sent={(False, 0, 0): 0, (False, 0, 1): 0},
        arrived={(True, 1, 0): 6, (True, 1, 1): 12},
    )  # fmt: skip
    quick = report(
        1, forward=2, backward=4, sent={(True, 1, 0): 5}, arrived=up(0, 0, 1)
    )
    slow = report(1, forward=4, backward=8, sent={(True, 1, 1): 5}, arrived=up(0, 1, 3))
    seen = live_times([first, quick, slow], [[0], [1, 2]])
    assert seen == LiveTimes((1, 2), (2, 4), (5,), (1, 1, 2))


def test_missing_observations_are_not_guessed():
    lonely = RankTimes(0.0, {0: 1.0}, {0: 2.0}, {}, {})
    assert live_times([lonely], [[0]]) == LiveTimes((1,), (2,), (), (1,))
    other = RankTimes(0.0, {1: 1.0}, {1: 2.0}, {}, {})
    assert live_times([lonely, other], [[0], [1]]) is None
    silent = RankTimes(0.0, {}, {}, {}, {})
    assert live_times([lonely, silent], [[0], [1]]) is None
