# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Benchmark of the market planners: its list, and its quick cases."""

import typer
from typer.testing import CliRunner

from benchmarks import market
from benchmarks.market_cases import auction, capacity, limits
from benchmarks.straggler_cases.case import Context

APP = typer.Typer(add_completion=False)
APP.command()(market.main)


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
    for name in ("auction-recorded", "capacity-generated", "≤ 0.93 of uniform"):
        assert name in done.output


def test_recorded_cases_without_a_folder_say_so():
    done = CliRunner().invoke(APP, ["beta"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "give --traces FOLDER" in done.output


def test_a_decision_is_below_its_bound():
    (case,) = [case for case in limits.CASES if case.name == "decision"]
    (row,) = limits.measure_decision(case, context())
    assert row.result.value > 0


def test_costs_of_policies_are_judged_by_each_bar():
    (case,) = [c for c in capacity.cases(None) if c.name == "capacity-generated"]
    rows = capacity.judged(capacity.generated(0)[:1], case, context())
    assert [row.of for row in rows] == ["uniform progress", "the offline oracle", "1"]
    assert rows[1].result.ratio >= 1.0
    assert rows[2].result.holds


def test_generated_markets_differ():
    first, second = capacity.generated(0)[:2]
    assert first.available.shape != second.available.shape or (
        first.available.mean() != second.available.mean()
    )
    assert len(auction.cases(None)) == 5
