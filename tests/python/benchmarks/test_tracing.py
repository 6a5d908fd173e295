# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Plans and judgements of the benchmark; its ranks do not run here."""

from itertools import pairwise

import pytest
import typer
from typer.testing import CliRunner

from aikido_torch.trace.analyze._step_facts import RankStep, StepFacts
from benchmarks import tracing
from benchmarks.common import Result
from benchmarks.lab import script
from benchmarks.tracing_cases import (
    confusion,
    instructions,
    memory,
    plan,
)
from benchmarks.tracing_cases.simulate import Injected, Model


def test_each_cause_hits_each_rank_and_no_two_at_a_time():
    planned = plan.phases(4, 2, seed=1)
    hits = [(p.cause, p.rank) for p in planned]
    assert len(hits) == 5 * 4 * 2
    assert len(set(hits)) == 5 * 4
    for before, after in pairwise(planned):
        assert before.at_s + before.for_s + plan.REST_S <= after.at_s + 1e-9


def test_the_lab_does_links_and_stops_and_the_ranks_the_rest():
    planned = [
        plan.Phase("network in", 1, 2.0, 3.0),
        plan.Phase("host stopped", 2, 6.0, 1.6),
        plan.Phase("compute", 3, 9.0, 1.6),
    ]
    events = script.parse(plan.script_of(planned))
    assert [(e.verb, e.target) for e in events] == [
        ("rate", 1), ("stop", 2), ("stop", 2), ("stop", 2),
    ]  # fmt: skip
    assert events[0].rates == (("down_mbit", 40.0),)
    assert plan.late_s(planned, "compute", 3, 9.5) == plan.LATE_S
    assert plan.late_s(planned, "compute", 3, 10.7) == 0
    assert plan.late_s(planned, "compute", 2, 9.5) == 0
    assert plan.late_s(planned, "input", 3, 9.5) == 0


def facts(step, works):
    return StepFacts(step, {r: RankStep(w, length_s=0.1) for r, w in enumerate(works)})


def judged(planned, slow, *, steps=35, first=0):
    """Windows of steps of 200 ms, in which rank 1 computes for longer in `slow`."""
    seen = [
        facts(i, [0.05, 0.15 if i in slow else 0.05, 0.05]) for i in range(first, steps)
    ]
    made = plan.windows(planned, seen, {f.step: f.step * 0.2 for f in seen})
    return [(w.cause, w.verdict.cause, w.verdict.first_step) for w in made], made


def test_a_phase_is_judged_by_the_first_window_that_lies_in_it():
    # The fault begins at step 28, and windows begin at steps 25 and 30.
    planned = [plan.Phase("compute", 1, 5.6, 2.0)]
    told, made = judged(planned, range(28, 38), steps=40)
    assert told[0] == ("compute", "compute", 30)
    # The window of steps 25 to 29 is on the edge of the fault, and blames no healthy
    # rank.
    assert told[1:] == [("none", "none", i) for i in (0, 5, 10, 15, 20)]
    rank, cause, alarms = confusion.judge(made, "here")
    assert (rank.value, cause.value, alarms.value) == (1.0, 1.0, 0)
    assert rank.holds
    assert cause.holds


def test_a_phase_in_which_no_window_lies_was_not_found():
    planned = [plan.Phase("compute", 1, 5.6, 1.0)]
    told, made = judged(planned, range(28, 33), steps=40)
    assert told[0] == ("compute", "none", 0)
    rank, cause, _ = confusion.judge(made, "here")
    assert (rank.value, cause.value) == (0.0, 0.0)


def test_a_window_on_the_edge_that_blames_the_wrong_rank_is_an_alarm():
    planned = [plan.Phase("compute", 2, 5.2, 2.0)]
    told, _ = judged(planned, range(25, 30))
    assert ("none", "compute", 25) in told


def test_what_is_said_wrong_is_shown_beside_what_was_wrong_then(capsys):
    planned = [plan.Phase("compute", 2, 5.2, 2.0)]
    _, made = judged(planned, range(25, 30))
    confusion.show(made, planned)
    shown = " ".join(capsys.readouterr().out.split())
    when = "steps from 5.0 to 5.8 s (compute on rank 2 from 5.2 to 7.2 s)"
    assert f"none on rank None, {when}: " in shown
    assert "from 0.0 to" not in shown  # windows with a right verdict are not shown


def test_without_faults_all_steps_are_well_and_an_alarm_is_false():
    told, made = judged([], [], steps=20)
    assert told == [("none", "none", i) for i in (0, 5, 10, 15)]
    assert confusion.judge_healthy(made, "here").value == 0
    _, made = judged([], range(20), steps=20)
    assert confusion.judge_healthy(made, "here").value == 4


@pytest.mark.parametrize(
    ("alarms", "steps", "bar", "holds"),
    [
        (0, 500, None, None),
        (1, 500, None, None),
        (1, 10_000, 1.0, True),
        (2, 10_000, 1.0, False),
        (10, 100_000, 1.0, True),
        (11, 100_000, 1.0, False),
    ],
)
def test_alarms_are_judged_where_one_is_allowed(alarms, steps, bar, holds):
    found = confusion.judge_alarms(alarms, steps, "here")
    assert (found.value, found.bar, found.holds) == (alarms, bar, holds)


def test_a_wrong_rank_and_a_wrong_cause_count():
    planned = [plan.Phase("input", 2, 5.0, 2.0)]
    steps = [facts(i, [0.05, 0.15, 0.05]) for i in range(25, 35)]
    made = plan.windows(planned, steps, {i: i * 0.2 for i in range(25, 35)})
    rank, cause, _ = confusion.judge(made, "here")
    assert (rank.value, rank.holds) == (0.0, False)
    assert (cause.value, cause.holds) == (0.0, False)


def test_the_simulator_is_the_same_for_the_same_seed_and_slow_where_it_is_told():
    steps = [None, Injected("network out", 1)]
    first, second = Model().run(steps, seed=4), Model().run(steps, seed=4)
    assert first == second
    assert Model().run(steps, seed=5) != first
    assert {len(dump.spans) for dump in first} == {2 * (3 + 1 + 6)}


def runner_of(arguments):
    app = typer.Typer()
    app.command()(tracing.main)
    return CliRunner().invoke(app, arguments)


def test_the_list_says_the_bars():
    shown = runner_of(["--list"])
    assert shown.exit_code == 0
    for name in tracing.PARTS:
        assert name in shown.output
    assert "99%" in shown.output


@pytest.mark.parametrize(
    ("part", "module", "function", "option"),
    [
        ("simulated", confusion, "simulated_alarms", "--simulated"),
        ("memory", memory, "measure", "--memory-steps"),
        ("instructions", instructions, "measure", "--counted-steps"),
    ],
)
@pytest.mark.parametrize("length", ["usual", "full", "given"])
def test_full_is_longer_unless_a_length_is_given(
    monkeypatch, part, module, function, option, length
):
    asked = []

    def measured(steps, *seed):
        asked.append(steps)
        result = Result.judge("x", unit="", value=0, reference=1, bar=1)
        return [result] if part == "instructions" else result

    monkeypatch.setattr(module, function, measured)
    known = tracing.PARTS[part]
    arguments, want = {
        "usual": ([], known.usual),
        "full": (["--full"], known.full),
        "given": (["--full", option, "2000"], 2000),
    }[length]
    shown = runner_of(["--only", part, *arguments])
    assert shown.exit_code == 0, shown.output
    assert asked == [want]
    assert known.usual < known.full


@pytest.mark.parametrize(("after", "holds"), [(1004, True), (1006, False)])
def test_memory_is_that_of_the_largest_rank(after, holds):
    mib = 2**20
    found = memory.judge([(900 * mib, 901 * mib), (1000 * mib, after * mib)], 5000)
    assert (found.value, found.reference, found.holds) == (after, 1000, holds)
    assert "5,000 steps" in found.case


def test_with_full_the_bars_mean_what_they_say():
    part = tracing.PARTS["confusion"]
    assert len(plan.phases(confusion.SIZE, part.full, 0)) >= 200


def test_an_unknown_part_is_refused():
    shown = runner_of(["--only", "nothing"])
    assert shown.exit_code == 2
    assert "nothing" in shown.output
