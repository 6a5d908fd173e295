# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Evaluation of observed turns by the cases; the turns do not run here."""

import contextlib
import functools

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import ordering
from benchmarks.ordering_cases import (
    crossover,
    urgent,
    urgent_runs,
    urgent_stream,
    urgent_tuning,
)
from benchmarks.ordering_cases.urgent_plan import (
    URGENT_BYTES,
    Turn,
    estimate_s,
    from_json,
    to_json,
)
from benchmarks.ordering_cases.urgent_runs import Record
from benchmarks.straggler_cases.case import CaseError, Context

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
    names = ("behind-bulk-10", "behind-bulk-50", "urgent-message", "rate-drop")
    for name in (
        *names,
        "crossover",
        "≤ 1.35 of alone",
        "≤ 1.02",
        "≥ 0.97 of bulk alone",
    ):
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
    ours, theirs = urgent.turns_of(5, seed=3)
    assert [ours, theirs] == urgent.turns_of(5, seed=3)
    for i in range(0, 10, 2):
        alone, behind = ours[i : i + 2]
        fifo, gloo = theirs[i : i + 2]
        assert (alone.num_bulk, alone.after_s) == (0, 0.0)
        assert behind.after_s == fifo.after_s == gloo.after_s
        assert urgent.FIRST_S <= behind.after_s <= urgent.LAST_S
        assert (alone.priority, behind.priority) == (urgent.PRIORITY,) * 2
    assert {turn.priority for turn in theirs} == {0}
    assert len({turn.after_s for turn in theirs}) == 5


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
        return [record_of(r.turn, 1e6, 1e6) for r in records[:2]] + records[2:]

    monkeypatch.setattr(urgent_runs, "lab_of", _no_lab)
    monkeypatch.setattr(urgent_runs, "run", run)
    case = urgent.CASES[0]
    rows = case.measure(case, context())
    assert [row.result.holds for row in rows] == holds
    assert [row.gloo for row in rows] == pytest.approx([95, 110])


@contextlib.contextmanager
def _no_lab(num_hosts, *, mbit, queue_ms, delay_ms=0.0):
    yield functools.partial(print, num_hosts, mbit, queue_ms, delay_ms)


def stream_record(plan, latency_ms, rate, *, first_ms=1.0, inversions=0):
    """A record in which one message arrives after the bulk, and takes no time."""
    begins = [float(i) for i in range(plan.num_urgent)]
    ends = [begin + latency_ms / 1e3 for begin in begins]
    ends[:1] = [first_ms / 1e3] if begins else []
    seen = {"begins": [*begins, 1e6], "ends": [*ends, 1e6], "bulk_end": 1e5}
    counters = {"inversions": inversions, "credit_bytes": 1, "preemptions": 2}
    return urgent_stream.Record(plan, seen | {"bulk_rate": rate, "counters": counters})


@pytest.mark.parametrize(
    ("latency_ms", "first_ms", "rate", "inversions", "holds"),
    [
        (0.7, 0.9, 97.5, 0, [True, True, True, True, True, None]),
        (2.0, 0.9, 96.0, 0, [False, True, False, True, True, None]),
        (4.0, 0.9, 99.0, 1, [False, False, True, False, True, None]),
        (0.7, 4.0, 99.0, 0, [True, True, True, True, False, None]),
    ],
)
def test_urgent_messages_have_limits_and_so_has_what_bulk_loses(
    monkeypatch, latency_ms, first_ms, rate, inversions, holds
):
    def run(lab, plan, context):
        if plan.num_urgent == 0:
            assert not plan.is_told  # as in a group without priorities
            return stream_record(plan, 0, 100.0)
        if not plan.is_told:
            return stream_record(plan, 2, rate, first_ms=18)
        return stream_record(
            plan, latency_ms, rate, first_ms=first_ms, inversions=inversions
        )

    monkeypatch.setattr(urgent_stream, "lab_of", _no_lab)
    monkeypatch.setattr(urgent_stream, "run", run)
    (case,) = urgent_stream.CASES
    rows = case.measure(case, context())
    assert [row.result.holds for row in rows] == holds
    assert [row.result.value for row in rows[-2:]] == pytest.approx([first_ms, 18])


@pytest.mark.parametrize(
    ("own", "holds"), [((10.4, 104), [True, True]), ((10.6, 106), [False, False])]
)
def test_the_own_credit_is_compared_with_the_best_fixed_one(monkeypatch, own, holds):
    def run(lab, credit, ops, context):
        fixed = {12 << 10: (10, 120), 24 << 10: (11, 100)}
        times = fixed.get(credit, (50, 110)) if credit else own
        return [record_of(urgent_tuning.OP, *times)] * ops

    monkeypatch.setattr(urgent_runs, "lab_of", _no_lab)
    monkeypatch.setattr(urgent_tuning, "run", run)
    (case,) = urgent_tuning.CASES
    assert [row.result.holds for row in case.measure(case, context())] == holds


def test_credits_take_turns_so_that_a_slow_hour_hits_all(monkeypatch):
    asked = []

    def run(lab, credit, ops, context):
        asked.append(credit)
        ms = len(asked)  # each run is slower than the run before
        return [record_of(urgent_tuning.OP, ms, ms)] * ops

    monkeypatch.setattr(urgent_tuning, "run", run)
    found = urgent_tuning.measured(None, 30, context())
    credits = [urgent_tuning.OWN, *urgent_tuning.FIXED_BYTES]
    assert asked == credits + credits[::-1]
    middle = (1 + len(asked)) / 2
    assert [seen.urgent_ms for seen in found.values()] == [middle] * len(credits)


def test_after_the_drop_some_operations_do_not_count(monkeypatch):
    seen = {}

    def run(lab, turns, context, *, rates, env):
        seen.update(rates=rates, env=env)
        slow = urgent_tuning.FAST_OPS + urgent_tuning.LEARN_OPS
        return [
            record_of(t, *((9, 9) if i < slow else (3, 7))) for i, t in enumerate(turns)
        ]

    class Lab:
        def change(self, host, **rates):
            seen.setdefault("hosts", []).append(host)

    monkeypatch.setattr(urgent_runs, "run", run)
    found = urgent_tuning.run(Lab(), 4096, 5, context())
    assert [r.urgent_ms for r in found] == pytest.approx([3] * 5)
    assert [r.all_ms for r in found] == pytest.approx([7] * 5)
    assert seen["rates"] == {urgent_tuning.FAST_OPS: urgent_tuning.SLOW_MBIT}
    assert seen["env"] == {"AIKIDO_TRANSPORT_CREDIT_BYTES": "4096"}
    assert seen["hosts"] == [0, 1, 2, 3]


def test_a_crossing_lies_between_the_sizes_where_the_faster_one_changes():
    sizes = (1, 4, 16)
    assert crossover.crossing(sizes, (1, 2, 8), (2, 1, 1)) == pytest.approx(2)
    assert crossover.crossing(sizes, (1, 1, 4), (2, 1, 2)) == pytest.approx(4)
    for first, then in (((1, 1, 1), (2, 2, 2)), ((2, 2, 2), (1, 1, 1))):
        with pytest.raises(CaseError, match="faster at all sizes"):
            crossover.crossing(sizes, first, then)


def test_the_formulas_say_that_latency_moves_the_crossing():
    # 2 alpha + 6 m beta = 4 alpha + 1.5 m beta.
    for delay_ms in crossover.DELAYS_MS:
        exact = 2 * (2 * delay_ms / 1e3) / (4.5 * 8e-6 / crossover.MBIT)
        assert crossover.predicted(delay_ms) == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize(
    ("moved", "auto", "holds"),
    [(4, 1.04, [True, True]), (1, 1.04, [False, True]), (4, 1.06, [True, False])],
)
def test_a_crossing_that_stays_and_an_auto_that_chooses_badly_are_missed(
    monkeypatch, moved, auto, holds
):
    def run(lab, turns, context, *, env):
        assert env == {"AIKIDO_COLLECTIVES_MIN_SHARD_BYTES": "8388608"}
        scale = moved if lab.args[-1] > crossover.DELAYS_MS[0] else 1

        def ms(turn):
            times = {
                "direct": 10 * scale + turn.urgent_bytes / 1e4,
                "halving_doubling": 20 * scale + turn.urgent_bytes / 4e4,
            }
            return times.get(turn.algorithm) or auto * min(times.values())

        def is_cold(i):
            return i % crossover.IN_A_ROW < crossover.WARM_UPS

        return [
            record_of(turn, 1e6 if is_cold(i) else ms(turn), 1e6)
            for i, turn in enumerate(turns)
        ]

    monkeypatch.setattr(urgent_runs, "lab_of", _no_lab)
    monkeypatch.setattr(urgent_runs, "run", run)
    (case,) = crossover.CASES
    rows = case.measure(case, context())
    assert [row.result.holds for row in rows] == holds
