# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
from types import SimpleNamespace
from typing import ClassVar

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
        contributors=[0, 1],
        skipped={},
        stand_ins={},
        shards=[],
        reason="complete",
        deadline_ms=0.0,
        cancelled_bytes=0,
        **fields,
    )


def test_a_call_counts_once_when_it_has_ended(monkeypatch):
    counted = []
    monkeypatch.setattr(
        _step_book.StepCounters,
        "add",
        lambda self, *call: counted.append((self.step, *call)),
    )
    book, outcome = StepBook(0, 4), outcome_of()
    works = [Work(outcome), Work(None), Work(PeerLostError("gone"))]
    for step, work in enumerate(works):
        book.start(step, work, 7)
    assert book.collect() == []
    for work in works:
        work.is_over = True
    assert book.collect() == [(0, outcome)]
    assert book.collect() == []
    assert list(book.outcomes) == [outcome]
    assert counted == [(0, outcome, 7)]
    assert list(book.by_step) == [0]


def test_the_end_of_a_step_is_recorded_with_its_way_and_time(monkeypatch):
    times = iter([100.0, 100.5, 101.0, 101.25])
    book = StepBook(0, 4)
    monkeypatch.setattr(_step_book.time, "monotonic", lambda: next(times))
    book.end_step(0, "own")
    book.end_step(1, "replayed")
    book.end_step(2, "copied", 3)
    book.end_step(3, "own")
    # The time since the end of the step before, in whatever way that was done.
    assert list(book.own_steps_s)[1:] == [0.25]
    assert (book.replayed_steps, book.copied_steps) == (1, 1)
    told = [(c.way, c.copied_from, c.ended_at) for c in book.by_step.values()]
    assert told == [
        ("own", None, 100.0),
        ("replayed", None, 100.5),
        ("copied", 3, 101.0),
        ("own", None, 101.25),
    ]


def test_many_calls_are_collected_together():
    book = StepBook(0, 4)
    for step in range(_step_book._MANY - 1):
        assert not book.has_many
        book.start(step, Work(None))
    assert not book.has_many
    book.end_quiet(_step_book._MANY, [(100.0, [(Work(None), 1)])])
    assert book.has_many


def test_quiet_steps_are_recorded_later_and_before_the_calls_that_follow(monkeypatch):
    monkeypatch.setattr(_step_book.time, "monotonic", lambda: 103.0)
    book = StepBook(0, 4)
    outcomes = [outcome_of() for _ in range(5)]
    works = [Work(outcome) for outcome in outcomes]
    for work in works:
        work.is_over = True
    book.start(0, works[0])
    book.end_quiet(1, [(101.0, [(works[1], 3), (works[2], 4)]), (102.5, [])])
    book.start(3, works[3])
    assert list(book.by_step) == []
    book.end_step(3, "own")
    told = [(c.step, c.ended_at) for c in book.by_step.values()]
    assert told == [(1, 101.0), (2, 102.5), (3, 103.0)]
    assert list(book.own_steps_s)[1:] == [1.5, 0.5]
    book.start(4, works[4])
    expected = list(zip([0, 1, 1, 3, 4], outcomes, strict=True))
    assert book.collect() == expected


def test_collect_records_quiet_steps():
    book, work = StepBook(0, 4), Work(outcome_of())
    work.is_over = True
    book.end_quiet(7, [(101.0, [(work, 3)])])
    assert [step for step, _ in book.collect()] == [7]
    assert book.by_step[7].ended_at == 101.0


def test_only_the_last_steps_are_kept(monkeypatch):
    monkeypatch.setattr(_step_book, "_MOST_STEPS", 3)
    book = StepBook(0, 4)
    for step in range(5):
        assert book.counters(step).step == step
    assert book.counters(4) is book.by_step[4]
    assert list(book.by_step) == [2, 3, 4]


def ended(book, step, outcome):
    work = Work(outcome)
    work.is_over = True
    book.start(step, work)
    book.collect()
    return work


def late_outcome(*skipped):
    return SimpleNamespace(
        skipped=list(skipped),
        stand_ins=[],
        reason="deadline",
        deadline_ms=1.0,
        cancelled_bytes=0,
        contributors=[],
        shards=[],
    )


def test_the_steps_know_what_waiting_would_have_given():
    book = StepBook(0, 4, waiting=lambda: "what waiting gives")
    assert book.steps([]).waiting == "what waiting gives"


def test_the_shares_of_a_group_are_found_by_its_backend():
    class Backend:
        place = (2, 4)
        counters: ClassVar[dict] = {
            f"replayed_{name}": 3
            for name in ("operations", "bytes", "bytes_in", "us", "wait_all_us")
        }

    backend = Backend()
    book = StepBook.of(backend)
    assert book.steps([]).place == (2, 4)
    assert book.steps([]).waiting.operations == 3
    assert _step_book.progress_on[backend] is book.shares


def test_the_steps_say_whose_they_are():
    steps = StepBook(2, 4).steps(["a note"])
    assert (steps.place, steps.notes, list(steps)) == ((2, 4), ["a note"], [])


def test_a_step_without_the_own_gradient_counts_once():
    book = StepBook(1, 4)
    for step, skipped in ((3, 0), (4, 1), (4, 1)):
        ended(book, step, late_outcome(skipped))
    assert book.skipped_steps == 1
    for step in (4, 5, 6, 5):
        book.note_skipped(step)
    assert book.skipped_steps == 3


def test_a_rank_that_is_late_for_a_minute_is_logged(monkeypatch, caplog):
    now = 100.0
    monkeypatch.setattr(_step_book.time, "monotonic", lambda: now)
    book = StepBook(1, 4, say=lambda text: f"{text} (in the job: 5)")
    for step in range(20):
        now += 10.0
        if step % 2:
            ended(book, step, late_outcome(0, 1))
        else:
            book.note_copied(step)
    assert book.skipped_steps == 20
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("aikido", "WARNING")
    assert record.message.startswith("Rank 1 (this rank) has had less than half of ")
    assert record.message.endswith(" (in the job: 5)")


def test_ranks_that_were_in_time_come_first():
    book = StepBook(1, 4)
    assert book.by_lateness(4) == [2, 3, 0]
    ended(book, 0, late_outcome(2, 1))
    assert book.by_lateness(4) == [3, 0, 2]
