# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json

from benchmarks import check
from benchmarks.straggler_cases.case import (
    Bar,
    Case,
    CaseError,
    NotSupportedError,
    list_table,
    notes,
    result_table,
)

CASE = Case(
    name="slow",
    what="a link is slow",
    bars=(
        Bar(what="op", of="healthy", bar=1.1),
        Bar(what="rate", of="clean", bar=0.97, unit="/s", better="higher"),
        Bar(what="skips", of="none", bar=1.0, unit=""),
    ),
    measure=lambda case, context: [],
)


def test_a_value_is_judged_by_its_bar():
    row = CASE.judge(0, value=105, reference=100, gloo=900, note="why")
    assert (row.verdict, row.bound, row.result.unit) == (
        "holds",
        110.00000000000001,
        "ms",
    )
    assert CASE.judge(0, value=111, reference=100).verdict == "missed"
    assert CASE.judge(1, value=98, reference=100).verdict == "holds"
    assert CASE.judge(1, value=96, reference=100).verdict == "missed"


def test_what_must_not_happen_holds_at_zero_only():
    assert CASE.judge(2, value=0, reference=0).verdict == "holds"
    assert CASE.judge(2, value=1, reference=0).verdict == "missed"


def test_a_case_that_fails_holds_nothing_and_tells_why():
    rows = CASE.failed(CaseError("rank 1: PeerLostError: gone"))
    assert [row.result.holds for row in rows] == [False] * 3
    assert {row.verdict for row in rows} == {"failed: rank 1: PeerLostError: gone"}


def test_what_does_not_exist_yet_is_not_judged():
    rows = CASE.failed(NotSupportedError("not supported: no such option"))
    assert [(row.result.bar, row.result.holds) for row in rows] == [(None, None)] * 3
    assert rows[0].verdict == "not supported: no such option"


def test_the_file_is_one_that_check_reads(tmp_path):
    rows = [
        CASE.judge(0, value=105, reference=100, gloo=900, note="why", p95=3.0),
        *CASE.failed(CaseError("x")),
        CASE.show("behind", value=3, unit="ops"),
    ]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([row.as_json() for row in rows]))
    assert [result.holds for result in check.read(file)] == [True, *[False] * 3, None]
    first = json.loads(file.read_text())[0]
    assert (first["gloo"], first["verdict"], first["p95"]) == (900, "holds", 3.0)


def test_all_rows_and_bars_are_printed():
    rows = [
        CASE.judge(0, value=105, reference=100, note="why"),
        *CASE.failed(CaseError("x")),
    ]
    assert result_table(rows, title="a benchmark").row_count == 4
    assert notes(rows) == ["slow: op: why"]
    assert list_table([CASE], title="cases").row_count == 3
