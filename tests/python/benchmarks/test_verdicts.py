# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""A short form of the pure table, and the evaluation of the table."""

import random
import time
from collections import Counter

import numpy as np
import pytest

from aikido_torch.trace import attribute
from aikido_torch.trace.analyze._verdict import Culprit, Verdict
from benchmarks.verdict_cases import live, pure, training
from benchmarks.verdict_cases.training import Phase
from benchmarks.verdict_cases.windows import (
    CAUSES,
    PATTERNS,
    SHAPES,
    Cell,
    can_tell,
    window_of,
)

CELL = Cell(4, 1, "steady", 20, 0.05, 0.4)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_late_ranks_are_named_where_the_window_can_tell(pattern):
    rng = np.random.default_rng(1)
    able = [c for c in pure.cells() if c.pattern == pattern and can_tell(c)]
    wrong = []
    for number, cell in enumerate(random.Random(1).sample(able, 50)):
        part = sorted(CAUSES)[number % len(CAUSES)]
        steps, culprits = window_of(cell, rng, part)
        verdict = attribute(steps)
        outcome = pure.outcome_of(cell, verdict, culprits, CAUSES[part])
        wrong += [] if outcome == "right" else [(cell, outcome, verdict.evidence)]
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("shape", SHAPES)
def test_nobody_is_named_where_nobody_is_late(shape):
    rng = np.random.default_rng(2)
    alarms = [
        (size, steps)
        for size in (2, 3, 4, 8)
        for steps in pure.STEPS
        for noise in (0.05, 0.5)
        if attribute(
            window_of(Cell(size, 0, "steady", steps, noise, 0, shape), rng)[0]
        ).has_culprit
    ]
    assert alarms == []


def test_a_window_that_cannot_tell_does_not_say_that_nobody_is_late():
    rng = np.random.default_rng(3)
    cell = Cell(4, 1, "steady", 5, 0.5, 0.2)
    assert not can_tell(cell)
    said = Counter(attribute(window_of(cell, rng)[0]).cause for _ in range(50))
    assert said == {"too short": 50}


def test_the_generator_delays_whom_it_says():
    rng = np.random.default_rng(4)
    steps, culprits = window_of(Cell(4, 2, "steady", 6, 0.01, 3.0), rng, "input")
    for facts in steps:
        late = {rank for rank, own in facts.ranks.items() if own.work_s > 2}
        assert late == culprits
        assert {r for r, own in facts.ranks.items() if own.input_s > 2} == culprits


def verdict(cause, ranks=()):
    culprits = [culprit(rank, cause) for rank in ranks]
    return Verdict(cause, None, "steady", 0.1, 0, 4, "", tuple(culprits))


def culprit(rank, cause):
    return Culprit(rank, cause, None, 0.1, 1.0, 5)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (verdict("compute", [1, 2]), "right"),
        (verdict("compute", [1]), "wrong"),
        (verdict("input", [1, 2]), "wrong"),
        (verdict("none"), "none"),
        (verdict("too short"), "too short"),
    ],
)
def test_a_verdict_is_right_if_ranks_and_cause_are(said, outcome):
    assert pure.outcome_of(CELL, said, {1, 2}, "compute") == outcome


def test_the_bars_are_those_of_the_guarantee():
    short = Cell(4, 1, "steady", 2, 0.5, 0.4)
    counts = {
        CELL: Counter(right=98, wrong=2),
        short: Counter({"too short": 98, "none": 2}),
    }
    able, unable = pure.judge(counts)[:2]
    assert (able.value, able.holds) == (0.98, False)
    assert (unable.value, unable.holds) == (0.02, False)
    few, many = pure.judge_alarms({"normal": (1, 500), "common": (2, 2000)})
    assert (few.holds, many.holds) == (None, True)


@pytest.mark.parametrize(
    ("phase", "said", "is_right"),
    [
        (Phase("none", ()), verdict("too short"), True),
        (Phase("none", ()), verdict("compute", [1]), False),
        (Phase("compute", (0, 1)), verdict("compute", [0, 1]), True),
        (Phase("compute", (0, 1)), verdict("compute", [1]), False),
        (Phase("loop", (1,)), verdict("compute", [1]), False),
        (Phase("loop", (0, 1), in_turn=True), verdict("loop", [0, 1]), False),
    ],
)
def test_a_phase_of_a_training_is_right_if_its_late_ranks_are_named(
    phase, said, is_right
):
    seen = live.Seen("here", phase, said)
    assert seen.is_right == is_right
    assert live.judge([seen])[0].holds == is_right


def test_each_cause_has_one_late_rank_half_of_them_and_each_in_turn():
    planned = live.phases(4, "ddp")
    assert len(planned) == 1 + 4 * 3
    assert planned[1:4] == [
        Phase("compute", (3,)),
        Phase("compute", (0, 1)),
        Phase("compute", (0, 1, 2, 3), in_turn=True),
    ]
    assert {phase.cause for phase in live.phases(2, "pipeline")} == {
        "none", "compute", "loop", "host stopped",
    }  # fmt: skip


def test_a_phase_delays_its_ranks_in_its_steps():
    turn = Phase("loop", (0, 1), in_turn=True)
    late = [[turn.late_s("loop", rank, step) > 0 for rank in (0, 1)] for step in (0, 1)]
    assert late == [[True, False], [False, True]]
    assert turn.late_s("compute", 0, 0) == 0


# (clock, waits of all threads, waits of threads in calls) before and after each step.
LONG_SHARE = [(0, 0, 0), (2, 1, 0), (2, 1, 0)]
LONG_STEP = [(10, 0, 0), (12, 0.1, 0.02), (12, 0.1, 0.02)]
QUIET = [(20, 0, 0), (30, 0.5, 0.001), (30, 0.5, 0.001)]


def tried(tries, monkeypatch, group):
    """The tries that `train` takes for one step, with the kernel's counts for
    each try.
    """
    counts = iter([count for seconds in tries for count in seconds])
    monkeypatch.setattr(training.Waits, "_seconds", lambda _: next(counts))
    monkeypatch.setattr(training, "_step_of", lambda *_: lambda *_: None)
    traced = []

    def step(step, rank, phase, waits):
        waits.end_step()
        traced.append(len(traced))
        return traced[-1]

    monkeypatch.setattr(training, "_traced", step)
    ((taken, seen),) = training.train(0, 1, "ddp", [Phase("none", ())])
    return taken, len(traced), seen


def test_a_phase_in_which_a_rank_waits_for_a_core_is_repeated(
    group_of_one, monkeypatch
):
    tries = [LONG_SHARE, LONG_STEP, QUIET]
    taken, number, seen = tried(tries, monkeypatch, group_of_one)
    assert (taken, number) == (2, 3)
    assert (seen.share, seen.longest_s) == pytest.approx((0.05, 0.001))


def test_the_try_counts_that_the_machine_disturbed_least(group_of_one, monkeypatch):
    tries = [LONG_SHARE, LONG_SHARE, LONG_STEP, LONG_SHARE, LONG_SHARE]
    taken, number, seen = tried(tries, monkeypatch, group_of_one)
    assert (taken, number) == (2, training.MOST_TRIES)
    assert seen.size == pytest.approx(2.0)


def test_waits_for_a_core_are_read_from_the_kernel(group_of_one):
    waits = training.Waits()
    waits.end_step()
    seen = waits.seen()
    # There is no upper limit: several threads may wait at once, and a wait that began
    # before counts in full when it ends.
    assert seen.share >= 0
    assert seen.longest_s >= 0
    of_all, of_calls = training._waited_s()
    assert 0 < of_calls <= of_all < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_only_what_is_wrong_and_was_disturbed_is_done_again(monkeypatch):
    quiet, loud = training.Disturbance(0.05, 0.001), training.Disturbance(0.5, 0.1)
    wrong, right = verdict("loop", [0]), verdict("none")
    planned = [Phase("none", ()), Phase("none", ()), Phase("none", ())]
    tries = iter([[(right, loud), (wrong, quiet), (wrong, loud)], [(right, quiet)]])
    done = []

    def train(size, wrapper, phases):
        done.append(len(phases))
        said = zip(phases, next(tries), strict=True)
        return [live.Seen("here", phase, v, seen) for phase, (v, seen) in said]

    monkeypatch.setattr(live, "phases", lambda *_: planned)
    monkeypatch.setattr(live, "_train", train)
    assert [seen.is_right for seen in live.run(2, "ddp")] == [True, False, True]
    assert done == [3, 1]
