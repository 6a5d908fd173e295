# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import check, reassign
from benchmarks.reassign_cases import short
from benchmarks.reassign_cases.cases import cases

APP = typer.Typer(add_completion=False)
APP.command()(reassign.main)


def run(*arguments):
    return CliRunner().invoke(APP, [*arguments])


def test_the_list_shows_all_cases_and_their_bars():
    ended = run("--list")
    assert ended.exit_code == 0, ended.output
    for case in cases(4):
        assert case.name in ended.output


def test_an_unknown_case_is_refused_with_the_known_ones():
    ended = run("--case", "slower-7")
    assert ended.exit_code == 2
    assert "slower-50" in ended.output


@pytest.mark.parametrize("num_ranks", [4, 8])
def test_bars_are_those_that_were_fixed(num_ranks):
    bars = {case.name: [bar.bar for bar in case.bars] for case in cases(num_ranks)}
    assert bars == {
        "slower-50": [1.10],
        "slower-100": [1.10],
        "slower-200": [1.10],
        "slower-400": [1.10],
        "moving": [1.10],
        "power-law": [1.10],
        "lengths": [1.08, 0.90],
        "nobody-slow": [1.01, 1.0],
        "moved-5": [1.0],
        "moved-50": [1.0],
        "text": [1.10, 1.0],
    }


@pytest.mark.multiproc
@pytest.mark.alone
@pytest.mark.timeout(240)
def test_the_short_form_measures_its_row_and_it_holds(tmp_path):
    file = tmp_path / "rows.json"
    ended = run("--short", "--json", str(file))
    assert ended.exit_code == 0, ended.output
    rows = check.read(file)
    wanted = [f"{case.name}: {bar.what}" for case in short.CASES for bar in case.bars]
    assert [row.case for row in rows] == wanted
    assert all(row.holds for row in rows), ended.output
    arms = json.loads(file.read_text())[0]["arms"]
    assert [arm["arm"] for arm in arms] == [*short.ARMS]
    assert [arm["moved"] > 0 for arm in arms] == [False, False, True]
