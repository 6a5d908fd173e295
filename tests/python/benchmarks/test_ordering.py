# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""What the cases make of what ranks saw; their turns are not run here."""

import contextlib
import functools

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import ordering
from benchmarks.ordering_cases import urgent, urgent_runs
from benchmarks.ordering_cases.urgent_plan import (
    URGENT_BYTES,
    Turn,
    estimate_s,
    from_json,
    to_json,
)
from benchmarks.ordering_cases.urgent_runs import Record
from benchmarks.straggler_cases.case import Context

APP = typer.Typer(add_completion=False)
APP.command()(ordering.main)


def context():
    return Context(
        is_full=False,
        seed=0,
        on_progress=lambda share: None,
        on_record=lambda record: None,
    )


def test_the_cases_are_listed_with_their_bars():
    done = CliRunner().invoke(APP, ["--list"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for name in ("behind-bulk-10", "behind-bulk-50", "≤ 1.35 of alone", "≤ 1.02"):
        assert name in done.output


def test_a_turn_travels_to_its_ranks():
    turns = [urgent.ALONE, Turn(name="b", num_bulk=3, after_s=0.25, backend="gloo")]
    assert from_json(to_json(turns)) == turns


def test_slow_links_take_longer():
    turns = [urgent.BEHIND]
    assert estimate_s(turns, mbit=20) - estimate_s(turns, mbit=200) > 9


def test_an_urgent_call_counts_from_the_last_call_to_the_last_result():
    seen = {"bulk_begin": 1.0, "begin": 2.0, "end": 2.5, "bulk_end": 4.0}
    late = {"bulk_begin": 1.1, "begin": 2.25, "end": 2.75, "bulk_end": 4.5}
    record = Record(urgent.BEHIND, {0: seen, 1: late})
    assert record.urgent_ms == pytest.approx(500)
    assert record.all_ms == pytest.approx(3400)


def test_all_arms_are_urgent_after_the_same_time_of_links_in_use():
    turns = urgent.turns_of(5, seed=3)
    assert turns == urgent.turns_of(5, seed=3)
    for i in range(0, 20, 4):
        alone, *behind = turns[i : i + 4]
        assert alone.num_bulk == 0
        assert len({turn.after_s for turn in behind}) == 1
        assert urgent.FIRST_S <= behind[0].after_s <= urgent.LAST_S
        assert [turn.priority > 0 for turn in behind] == [True, False, False]
    assert len({turn.after_s for turn in turns}) == 6


def record_of(turn, urgent_ms, all_ms):
    seen = {"bulk_begin": 0.0, "begin": 0.0}
    seen |= {"end": urgent_ms / 1e3, "bulk_end": all_ms / 1e3}
    return Record(turn, dict.fromkeys(range(4), seen))


@pytest.mark.parametrize(
    ("urgent_ms", "all_ms", "holds"), [(13, 101, [True, True]), (14, 103, [False] * 2)]
)
def test_the_first_turn_does_not_count(monkeypatch, urgent_ms, all_ms, holds):
    def run(lab, turns, context):
        assert all(turn.urgent_bytes == URGENT_BYTES for turn in turns)
        times = {"alone": (10, 10), "behind": (urgent_ms, all_ms)}
        times |= {"fifo": (90, 100), "gloo": (95, 110)}
        records = [record_of(turn, *times[turn.name]) for turn in turns]
        return [record_of(r.turn, 1e6, 1e6) for r in records[:4]] + records[4:]

    monkeypatch.setattr(urgent_runs, "lab_of", _no_lab)
    monkeypatch.setattr(urgent_runs, "run", run)
    case = urgent.CASES[0]
    rows = case.measure(case, context())
    assert [row.result.holds for row in rows] == holds
    assert [row.gloo for row in rows] == pytest.approx([95, 110])


@contextlib.contextmanager
def _no_lab(num_hosts, *, mbit, queue_ms):
    yield functools.partial(print, num_hosts, mbit, queue_ms)
