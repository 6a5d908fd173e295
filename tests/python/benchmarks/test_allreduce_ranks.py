# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

from benchmarks import allreduce_ranks


class Clock:
    def __init__(self):
        self.now = 100.0

    def move(self, seconds):
        self.now += seconds


def test_to_meet_the_others_is_no_part_of_an_operation(monkeypatch):
    clock = Clock()
    stands_in = SimpleNamespace(monotonic=lambda: clock.now, sleep=clock.move)
    monkeypatch.setattr(allreduce_ranks, "time", stands_in)
    meeting = allreduce_ranks.Meeting(None)
    met_at, ended_at = [], []

    def latest(*values):
        met_at.append(clock.now)
        return list(values)

    def operation():
        clock.move(0.5)
        ended_at.append(clock.now)

    monkeypatch.setattr(meeting, "_latest", latest)
    seconds, is_in_time = meeting.time(lambda: None, operation)
    assert is_in_time
    assert abs(seconds - 0.5) < 1e-9
    # Until then the other ranks have the cores for themselves.
    assert abs(met_at[-1] - ended_at[-1] - allreduce_ranks.REST_S) < 1e-9
