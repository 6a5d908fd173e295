# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import contextlib
import dataclasses
import json

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import straggler
from benchmarks.straggler_cases import command, faults, training
from benchmarks.straggler_cases.case import (
    Bar,
    Case,
    CaseError,
    Context,
    NotSupportedError,
)
from benchmarks.straggler_cases.plan import NUM_RANKS, Action, Block
from benchmarks.straggler_cases.runs import Record, first_line


def run(*arguments, main=straggler.main):
    app = typer.Typer(add_completion=False)
    app.command()(main)
    return CliRunner().invoke(app, [*arguments])


def fails(error):
    def measure(case, context):
        raise error

    return measure


GOOD = Case(
    name="good",
    what="it works",
    bars=(Bar(what="op", of="healthy", bar=1.1),),
    measure=lambda case, context: [case.judge(0, value=100, reference=100)],
)
BROKEN = dataclasses.replace(
    GOOD, name="broken", measure=fails(CaseError("rank 1 died"))
)
OPEN = dataclasses.replace(
    GOOD, name="open", measure=fails(NotSupportedError("not supported: no option"))
)


def test_a_case_that_fails_leaves_the_others_alone(tmp_path):
    main = command.command("some cases", [BROKEN, GOOD, OPEN], "Measures them.")
    file = tmp_path / "new" / "rows.json"
    ended = run("--json", str(file), main=main)
    assert ended.exit_code == 0, ended.output
    rows = json.loads(file.read_text())
    assert [row["verdict"] for row in rows] == [
        "failed: rank 1 died",
        "holds",
        "not supported: no option",
    ]
    assert {row["mode"] for row in rows} == {"quick"}
    assert "machine" in rows[0]


def test_cases_are_chosen_by_name():
    main = command.command("some cases", [BROKEN, GOOD], "Measures them.")
    assert "good (1 of 1)" in run("good", main=main).output
    refused = run("bad", main=main)
    assert refused.exit_code == 2
    assert "'bad' is none of broken, good" in refused.output


def test_the_list_shows_all_cases_and_measures_nothing():
    ended = run("--list")
    assert ended.exit_code == 0
    for case in straggler.CASES:
        assert case.name in ended.output


def test_names_are_not_used_twice():
    names = [case.name for case in straggler.CASES]
    assert len(set(names)) == len(names)
    for case in straggler.CASES:
        figures = [bar.what for bar in case.bars]
        assert len(set(figures)) == len(figures), case.name


def test_random_faults_end_again_and_repeat_by_seed():
    actions = faults.random_faults(1000, seed=3, every=30)
    assert actions == faults.random_faults(1000, seed=3, every=30)
    stops = [a for a in actions if a.do == "stop"]
    assert stops
    assert len(stops) == sum(a.do == "continue" for a in actions)
    for first, second in zip(actions[::2], actions[1::2], strict=True):
        assert (first.target, first.at_op) == (second.target, second.at_op)
        assert second.after_s > first.after_s
    assert {a.target for a in actions} == set(range(NUM_RANKS))


def death(*, spent, after):
    """A kill at 10.1 s, in the tenth operation. Others take 1 s, and 1.2 s with three
    ranks.
    """
    ends = [*map(float, range(1, 11)), 10 + spent]
    ends += [ends[-1] + after * i for i in range(1, 4)]
    seen = {"begins": [0.0, *ends[:-1]], "ends": ends}
    three = {"begins": [0.0], "ends": [1.2]}
    block = Block(name="kill", arm="skip", ops=len(ends), healthy=(0, 2, 3))
    record = Record(block, by_rank=dict.fromkeys((0, 2, 3), seen))
    record.done = [(10.1, Action(do="kill", target=1))]
    other = Block(name="three", arm="strict3", ops=1)
    return [record, Record(other, by_rank=dict.fromkeys(range(3), three)), record]


def judged_deaths(monkeypatch, *deaths):
    deaths = iter(deaths)

    def die(*_):
        found = next(deaths)
        if isinstance(found, CaseError):
            raise found
        return found

    monkeypatch.setattr(faults, "_die", die)
    monkeypatch.setattr(faults.runs, "lab_of", contextlib.nullcontext)
    context = Context(
        is_full=False, seed=0, on_progress=lambda _: None, on_record=lambda _: None
    )
    (case,) = (case for case in faults.CASES if case.name == "kill")
    return case.measure(case, context)


def test_the_worst_operation_of_all_deaths_is_judged(monkeypatch):
    fast, slow = death(spent=1.1, after=1.25), death(spent=1.4, after=1.35)
    rows = judged_deaths(monkeypatch, fast, slow, fast)
    assert [row.verdict for row in rows] == ["holds", "missed", "holds"]
    assert rows[1].result.value == pytest.approx(1400)
    assert rows[1].bound == pytest.approx(1300)
    assert rows[2].result.ratio == pytest.approx(1.25 / 1.2)


def test_deaths_that_end_the_group_are_counted_beside_the_others(monkeypatch):
    ended = CaseError("rank 0: PeerLostError: gone")
    rows = judged_deaths(monkeypatch, ended, death(spent=1.1, after=1.2), ended)
    assert [row.verdict for row in rows] == ["missed", "holds", "holds"]
    assert rows[0].result.value == 2
    assert "of 3; seed 0: rank 0: PeerLostError" in rows[0].note
    none = judged_deaths(monkeypatch, ended, ended, ended)
    assert [row.verdict.partition(":")[0] for row in none] == [
        "missed",
        "failed",
        "failed",
    ]


def test_bad_times_come_again_and_again():
    moments = [(a.after_s, a.up_mbit) for a in training.bad_times(20)]
    assert moments == [(2, 10.0), (4, 200.0), (12, 10.0), (14, 200.0)]


def test_the_target_is_reached_at_the_first_look_that_has_it():
    looks = [(5, 1.0, 0.9), (10, 2.0, 0.97), (15, 3.0, 0.96)]
    curve = [dict(zip(("step", "seconds", "accuracy"), x, strict=True)) for x in looks]
    rank = {"curve": curve, "contributors": [4.0] * 6 + [3.0, 2.5, 3.0, 3.0] + [4.0]}
    record = Record(Block(name="ours", arm="skip", ops=1), by_rank={0: rank})
    assert training.to_target(record, 0.97) == (2.0, 32 * 35.5)
    del curve[1]
    with pytest.raises(CaseError, match=r"'ours' has not reached 97% but 96.0%"):
        training.to_target(record, 0.97)


def test_an_error_is_told_in_one_line():
    assert first_line("Ranks failed.\n---- rank 1\n\n  KeyError: 3\n") == (
        "Ranks failed. KeyError: 3"
    )
