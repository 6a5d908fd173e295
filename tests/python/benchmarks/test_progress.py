# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import check, progress
from benchmarks.progress_cases import healthy, late, links, pauses, short
from benchmarks.progress_cases.figures import Figures
from benchmarks.straggler_cases.case import Case, CaseError

APP = typer.Typer(add_completion=False)
APP.command()(progress.main)


def run(*arguments):
    return CliRunner().invoke(APP, [*arguments])


def test_the_list_shows_all_cases_and_their_bars():
    ended = run("--list")
    assert ended.exit_code == 0, ended.output
    for case in progress.CASES:
        assert case.name in ended.output


def test_names_and_figures_are_not_used_twice():
    cases = [*progress.CASES, *short.CASES]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        figures = [bar.what for bar in case.bars]
        assert len(set(figures)) == len(figures), case.name


def test_an_unknown_case_is_refused_with_the_known_ones():
    ended = run("--case", "healthy")
    assert ended.exit_code == 2
    assert "healthy-lab-37k" in ended.output


def bars_of(name):
    (case,) = (case for case in progress.CASES if case.name == name)
    return {bar.what: (bar.bar, bar.better) for bar in case.bars}


@pytest.mark.parametrize("where", ["lab", "host"])
@pytest.mark.parametrize("size", ["37k", "129k", "1.9m", "8m"])
def test_nobody_slow_has_a_case_for_each_size_and_place(where, size):
    assert bars_of(f"healthy-{where}-{size}") == {
        "progress": (0.98, "higher"),
        "steps per second": (0.98, "higher"),
        "share": (0.99, "higher"),
    }


@pytest.mark.parametrize(
    ("name", "bars"),
    [
        ("pause-129k", [(1.0, "lower"), (1.5, "lower")]),
        ("checkpoint-1.9m", [(1.0, "higher"), (0.85, "higher")]),
        ("bad-uplink", [(b, "higher") for b in (1.20, 0.92, 0.95, 1.0, 1.0)]),
        ("shared-uplink", [(1.12, "higher")]),
        *((f"slower-{more}", [(0.97, "higher")]) for more in (12, 25, 50, 100)),
        *((f"late-{share}", [(0.97, "higher")]) for share in ("fifth", "third")),
        *((f"jitter-{sigma}", [(0.97, "higher")]) for sigma in ("0.1", "0.3", "1")),
        ("rotating", [(0.97, "higher")]),
        ("two-late", [(0.97, "higher")]),
        ("bbr", [(1.03, "lower")] * 3),
    ],
)
def test_bars_are_those_that_were_fixed(name, bars):
    assert list(bars_of(name).values()) == bars


def test_bad_times_begin_later_and_come_again():
    moments = [(a.after_s, a.up_mbit) for a in links.bad_times(20)]
    assert moments == [(4, 10.0), (6, 200.0), (14, 10.0), (16, 200.0)]


def test_noise_is_two_standard_errors_of_the_mean():
    assert links.noise([0.9, 0.92, 0.94]) == pytest.approx(2 * 0.02 / 3**0.5)
    assert links.noise([0.9]) == 0.0


def figures(curve, accuracy=0.9):
    return Figures(
        seconds=1.0,
        tail_s=0.0,
        steps_per_second=1.0,
        share=1.0,
        share_by_rank=(1.0,),
        longest_skips_by_rank=(0,),
        accuracy=accuracy,
        curve=tuple(curve),
    )


def test_accuracies_are_compared_when_the_faster_run_has_ended():
    fast = figures([(1.0, 0.5), (2.0, 0.8)])
    slow = figures([(1.5, 0.6), (3.0, 0.9)])
    assert links.after_same_time([fast], [slow]) == (0.8, 0.6)
    assert links.after_same_time([slow], [fast]) == (0.6, 0.8)


def fails(case: Case, context) -> list:
    raise CaseError("rank 1 died")


def test_a_case_that_fails_has_rows_that_do_not_hold(tmp_path, monkeypatch):
    broken = Case(name="broken", what="", bars=healthy.BARS, measure=fails)
    monkeypatch.setattr(progress, "CASES", [broken])
    file = tmp_path / "rows.json"
    assert run("--json", str(file)).exit_code == 0
    assert [row["holds"] for row in json.loads(file.read_text())] == [False] * 3


@pytest.mark.multiproc
@pytest.mark.alone
@pytest.mark.timeout(240)
def test_the_short_form_measures_all_of_its_rows_and_they_hold(tmp_path):
    file = tmp_path / "rows.json"
    ended = run("--short", "--json", str(file))
    assert ended.exit_code == 0, ended.output
    rows = check.read(file)
    wanted = [f"{c.name}: {bar.what}" for c in short.CASES for bar in c.bars]
    assert [row.case for row in rows] == wanted
    assert all(row.holds for row in rows), ended.output
    runs = json.loads(file.read_text())[0]["arms"]
    assert {name: len(each) for name, each in runs.items()} == {"strict": 3, "skip": 3}
    assert len(runs["skip"][0]["share_by_rank"]) == 4
    assert len(runs["skip"][0]["longest_skips_by_rank"]) == 4


def test_every_case_is_in_the_part_that_has_its_name():
    names = {
        case.name for part in (healthy, pauses, links, late) for case in part.CASES
    }
    assert names == {case.name for case in progress.CASES}
