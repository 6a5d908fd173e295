# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

from benchmarks.lab import rank
from benchmarks.launch import MARK


class ManualClock:
    """Moves when told to."""

    now = 100.0

    def __call__(self):
        return self.now

    def move(self, seconds):
        self.now += seconds


def test_a_rank_is_late_at_its_first_pause_after_the_time():
    clock = ManualClock()
    lateness = rank.Lateness([(2.0, 0.5), (0.1, 0.3)], clock=clock, sleep=clock.move)
    assert lateness.pause() == 0
    clock.move(0.25)
    assert lateness.pause() == 0.3
    assert clock.now == 100.55
    assert lateness.pause() == 0
    clock.move(5)
    assert lateness.pause() == 0.5


def test_ready_tells_the_lab_and_reads_the_lateness_of_its_rank(monkeypatch, capsys):
    monkeypatch.setenv(rank.LATE_VARIABLE, "0:0.001 9999:1")
    lateness = rank.ready()
    said = json.loads(capsys.readouterr().out.removeprefix(MARK))
    assert said.keys() == {"ready"}
    assert lateness.pause() == 0.001


def test_outside_of_a_lab_nobody_is_late(monkeypatch):
    monkeypatch.delenv(rank.LATE_VARIABLE, raising=False)
    assert rank.ready().pause() == 0
