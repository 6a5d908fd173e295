# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import common
from benchmarks.common import Result, Samples

finite = st.floats(-1e9, 1e9, allow_nan=False)


def judge(value, reference, bar, **kwargs):
    return Result.judge(
        "a case", unit="ms", value=value, reference=reference, bar=bar, **kwargs
    )


@pytest.mark.parametrize(
    ("value", "reference", "bar", "better", "ratio", "holds"),
    [
        (10, 10, 1.0, "lower", 1.0, True),
        (11, 10, 1.05, "lower", 1.1, False),
        (11, 10, 1.05, "higher", 1.1, True),
        (10, 11, 1.0, "higher", 10 / 11, False),
        (0, 0, 1.0, "lower", 1.0, True),
        (1, 0, 5.0, "lower", math.inf, False),
    ],
)
def test_a_result_holds_within_its_bar(value, reference, bar, better, ratio, holds):
    result = judge(value, reference, bar, better=better)
    assert result.ratio == pytest.approx(ratio)
    assert result.holds is holds


def test_without_a_bar_nothing_is_judged(tmp_path, capsys):
    result = judge(3, 2, None)
    assert result.ratio == 1.5
    assert result.holds is None
    common.report([result])
    assert "None" not in capsys.readouterr().out


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_what_is_no_number_never_holds(better):
    assert not judge(math.nan, 1.0, 1.0, better=better).holds
    assert not judge(1.0, math.nan, 1.0, better=better).holds


def test_samples_summarise_what_was_measured():
    samples = Samples(tuple(float(i) for i in range(100, -1, -1)))
    assert samples.median == 50
    assert samples.p95 == 95
    assert samples.spread == 1.0
    assert Samples((3.0,)).p95 == 3.0
    assert Samples((3.0, 3.0)).spread == 0.0


@given(st.lists(finite, min_size=1), st.floats(0, 1))
def test_a_quantile_lies_between_the_extremes(values, share):
    quantile = Samples(tuple(values)).quantile(share)
    margin = 1e-9 * max(map(abs, values)) + 1e-300
    assert min(values) - margin <= quantile <= max(values) + margin


def test_cases_take_turns_and_the_warm_up_is_not_counted():
    now, order = 0.0, []

    def run(name, seconds):
        nonlocal now
        order.append(name)
        now += seconds

    taken = common.measure_interleaved(
        {"a": lambda: run("a", 1.0), "b": lambda: run("b", 2.0)},
        repeats=3,
        warmup=1,
        clock=lambda: now,
    )
    assert order == ["a", "b"] * 4
    assert taken == {"a": Samples((1.0,) * 3), "b": Samples((2.0,) * 3)}


@pytest.mark.parametrize(("repeats", "warmup"), [(0, 1), (1, -1)])
def test_a_measurement_without_repeats_is_refused(repeats, warmup):
    with pytest.raises(ValueError, match=f"repeats {repeats} .* warmup {warmup}"):
        common.measure_interleaved({}, repeats=repeats, warmup=warmup)


def test_machine_facts_place_a_number():
    facts = common.machine_facts()
    assert {"date", "commit", "cpu", "cores", "system", "python"} <= facts.keys()
    assert facts["cores"] >= 1
    assert all(facts.values())


def test_a_report_writes_a_file_that_names_the_machine(tmp_path, capsys):
    path = tmp_path / "deep" / "results.json"
    common.report([judge(1.0, 2.0, 0.9), judge(2.0, 1.0, 0.9)], path)
    rows = json.loads(path.read_text())
    assert [row["holds"] for row in rows] == [True, False]
    assert rows[0]["machine"]["python"]
    assert "a case" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("better", "value", "least", "bar"),
    [
        ("lower", 1.2, 0.8, 0.9),  # the least value reaches the bar
        ("lower", 0.8, 1.2, 0.9),  # the value itself reaches the bar
        ("lower", 1.2, 1.1, None),
        ("higher", 0.8, 0.95, 0.9),
        ("higher", 0.95, 0.8, 0.9),
        ("higher", 0.8, 0.85, None),
        ("higher", 0.9, 0.8, 0.9),
    ],
)
def test_no_bar_is_asked_where_nobody_can_hold_it(better, value, least, bar):
    taken = {"value": 2 * value, "least": 2 * least, "reference": 2.0}
    assert common.within_reach(0.9, **taken, better=better) == bar
    assert common.within_reach(None, **taken, better=better) is None
