# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace

from aikido_torch.ddp import _step_book
from aikido_torch.ddp._step_book import StepBook
from aikido_torch.errors import PeerLostError


class Work:
    """A call that ends when the test says so."""

    def __init__(self, outcome):
        self._outcome, self.is_over = outcome, False

    def is_completed(self):
        return self.is_over

    def outcome(self):
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def outcome_of(**fields):
    return SimpleNamespace(
        contributors=[0, 1], skipped={}, stand_ins={}, shards=[], **fields
    )


def test_a_call_counts_once_when_it_has_ended(monkeypatch):
    counted = []
    monkeypatch.setattr(
        _step_book.StepCounters, "add", lambda self, o: counted.append((self.step, o))
    )
    book, outcome = StepBook(), outcome_of()
    works = [Work(outcome), Work(None), Work(PeerLostError("gone"))]
    for step, work in enumerate(works):
        book.start(step, work)
    assert book.collect() == []
    for work in works:
        work.is_over = True
    assert book.collect() == [(0, outcome)]
    assert book.collect() == []
    assert list(book.outcomes) == [outcome]
    assert counted == [(0, outcome)]
    assert list(book.by_step) == [0]


def test_only_the_last_steps_are_kept(monkeypatch):
    monkeypatch.setattr(_step_book, "_MOST_STEPS", 3)
    book = StepBook()
    for step in range(5):
        assert book.counters(step).step == step
    assert book.counters(4) is book.by_step[4]
    assert list(book.by_step) == [2, 3, 4]
