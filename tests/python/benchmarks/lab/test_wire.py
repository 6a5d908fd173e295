# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import random

from benchmarks.lab.wire import Direction


def test_frames_arrive_in_order_after_the_delay():
    direction = Direction(0.010, 0.0, random.random)
    assert direction.next is None
    direction.push(b"first", 1.0)
    direction.push(b"second", 1.005)
    assert direction.next == 1.010
    assert direction.arrived(1.009) == []
    assert direction.arrived(1.010) == [b"first"]
    assert direction.arrived(2.0) == [b"second"]
    assert direction.next is None


def test_a_shorter_delay_does_not_let_frames_overtake():
    direction = Direction(0.010, 0.0, random.random)
    direction.push(b"first", 1.0)
    direction.delay_s = 0.0
    direction.push(b"second", 1.001)
    assert direction.arrived(1.005) == []
    assert direction.arrived(1.010) == [b"first", b"second"]


def test_the_asked_share_is_lost():
    direction = Direction(0.0, 0.1, random.Random(1).random)
    for _ in range(5000):
        direction.push(b"", 0.0)
    assert 4400 < len(direction.arrived(0.0)) < 4600


def test_what_is_on_its_way_is_bounded():
    direction = Direction(1.0, 0.0, random.random)
    for _ in range(70_000):
        direction.push(b"", 0.0)
    assert len(direction.arrived(9.0)) == 1 << 16
