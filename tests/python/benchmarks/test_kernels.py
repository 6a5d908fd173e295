# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest
import typer
from typer.testing import CliRunner

from benchmarks import kernels

BYTES = 32 << 10


def row(kind, set_name, gb_per_s, name="a loop"):
    seconds = BYTES / gb_per_s / 1e9
    return {
        "kib": 32,
        "sources": 4,
        "kind": kind,
        "set": set_name,
        "name": name,
        "bytes_read": BYTES,
        "seconds": [seconds] * 5,
    }


def rows_of(*, picked_sum=90.0, write=95.0, add=96.0, both=94.0, there=93.0):
    return [
        row("sum", "portable", 20.0),
        row("read", "portable", 25.0),
        row("write", "portable", 24.0),
        row("add", "portable", 24.0),
        row("add and write", "portable", 24.0),
        row("add there", "portable", 24.0),
        row("sum", "avx2", picked_sum),
        row("read", "avx2", 60.0),
        row("read", "avx2", 100.0, "a better loop"),
        row("write", "avx2", write),
        row("add", "avx2", add),
        row("add and write", "avx2", both),
        row("add there", "avx2", there),
    ]


@pytest.mark.parametrize(("picked_sum", "holds"), [(91.0, True), (89.0, False)])
def test_a_sum_is_held_against_the_fastest_read_of_its_set(picked_sum, holds):
    portable, picked = kernels.judged(rows_of(picked_sum=picked_sum))
    assert portable.case == "32 KiB, 4 sources, portable"
    assert portable.reference == pytest.approx(25.0)
    assert not portable.holds
    assert picked.case == "32 KiB, 4 sources, avx2 (picked)"
    assert picked.reference == pytest.approx(100.0)
    assert picked.value == pytest.approx(picked_sum)
    assert picked.holds is holds


def test_the_set_that_is_picked_is_held_against_all_sets():
    rows = [
        *rows_of(write=105.0, add=105.0, both=105.0, there=105.0),
        row("read", "portable", 110.0),
    ]
    assert kernels.judged(rows)[-1].reference == pytest.approx(110.0)


@pytest.mark.parametrize(
    ("limits", "what", "limit"),
    [
        ({"write": 80.0}, "reading and writing", 80.0),
        ({"add": 80.0}, "reading and adding", 80.0),
        ({"both": 80.0}, "reading, adding, writing", 80.0),
        ({"there": 80.0}, "reading, adding, writing there", 80.0),
        ({"write": 70.0, "add": 80.0}, "reading and writing", 70.0),
        ({"both": 80.0, "there": 70.0}, "reading, adding, writing there", 70.0),
        ({"write": 80.0, "both": 70.0}, "reading, adding, writing", 70.0),
    ],
)
@pytest.mark.parametrize(("share", "holds"), [(0.91, True), (0.89, False)])
def test_where_a_limit_misses_the_bar_the_sum_is_held_against_it(
    limits, what, limit, share, holds
):
    rows = rows_of(picked_sum=share * limit, **limits)
    _, beside_reading, beside_limit = kernels.judged(rows)
    assert beside_reading.case == "32 KiB, 4 sources, avx2 (picked)"
    assert beside_reading.reference == pytest.approx(100.0)
    assert beside_reading.bar is None
    assert beside_reading.holds is None
    assert beside_limit.case == f"{beside_reading.case}, beside {what}"
    assert beside_limit.reference == pytest.approx(limit)
    assert beside_limit.value == beside_reading.value
    assert beside_limit.holds is holds


def test_a_sum_that_reaches_the_bar_is_held_against_reading_despite_limits():
    picked = kernels.judged(rows_of(picked_sum=91.0, write=80.0, add=85.0))[1:]
    assert [result.holds for result in picked] == [True]
    assert picked[0].reference == pytest.approx(100.0)


def test_slow_spells_do_not_count():
    slow = row("sum", "avx2", 90.0)
    slow["seconds"] = [slow["seconds"][0] * factor for factor in (2, 1, 2, 2, 1)]
    assert kernels.rate(slow) == pytest.approx(90.0)


def test_cases_are_chosen_by_name():
    assert kernels.footprints_of([]) == [32, 512, 8192, 131072]
    assert kernels.footprints_of(["8 MiB", "32 KiB"]) == [32, 8192]
    with pytest.raises(typer.BadParameter, match="there is no case 9 MiB"):
        kernels.footprints_of(["9 MiB"])


def test_the_list_names_the_cases_and_measures_nothing(monkeypatch):
    monkeypatch.setattr(kernels.programs, "build", lambda name: pytest.fail("built"))
    app = typer.Typer()
    app.command()(kernels.main)
    answer = CliRunner().invoke(app, ["--list"])
    assert answer.exit_code == 0
    assert answer.output.splitlines() == list(kernels.FOOTPRINTS)


def test_a_program_that_cannot_be_built_is_told(monkeypatch):
    def fail(name):
        raise kernels.programs.BuildError(f"no {name}")

    monkeypatch.setattr(kernels.programs, "build", fail)
    app = typer.Typer()
    app.command()(kernels.main)
    answer = CliRunner().invoke(app, ["32 KiB"])
    assert answer.exit_code == 1
    assert "no bench_kernels" in answer.output + (answer.stderr_bytes or b"").decode()
