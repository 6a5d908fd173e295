# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Judgement of the instructions of tracing, and a measurement that it still holds."""

import sys

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import instructions as counting
from benchmarks import tracing
from benchmarks.tracing_cases import instructions
from benchmarks.tracing_cases.instructions import Allreduce, Step
from harness.counting import counted_program

SMALL = Allreduce({"without": 10_000, "disarmed": 10_040, "armed": 12_000}, readings=5)
# 2 ms, in which two allreduces may take 10,000 instructions more, or 60,000 while
# armed.
STEP = Step(cpu_s=2e-3, calls=2, elements=4096)


def test_clocks_are_read_only_while_it_is_armed():
    assert SMALL.extra("disarmed") == 40
    assert SMALL.extra("armed") == 2000 + 5 * instructions.READING


def test_the_small_allreduce_is_judged_disarmed():
    disarmed, armed, *_ = instructions.judge("gcc", SMALL, SMALL, STEP)
    assert (disarmed.value, disarmed.reference, disarmed.holds) == (
        10_040,
        10_000,
        True,
    )
    assert (armed.value, armed.reference, armed.holds) == (12_500, 10_000, None)
    late = Allreduce({"without": 10_000, "disarmed": 10_060, "armed": 10_060}, 0)
    assert instructions.judge("gcc", late, SMALL, STEP)[0].holds is False


@pytest.mark.parametrize(
    ("disarmed", "armed", "holds"),
    [
        (4_900, 29_000, [True, True]),
        (5_100, 29_000, [False, True]),
        (4_900, 31_000, [True, False]),
    ],
)
def test_a_step_is_judged_by_all_of_its_allreduces(disarmed, armed, holds):
    counted = {"without": 1e6, "disarmed": 1e6 + disarmed, "armed": 1e6 + armed}
    found = instructions.judge("gcc", SMALL, Allreduce(counted, 0), STEP)[2:]
    assert [result.holds for result in found] == holds
    assert [result.reference for result in found] == [2000, 2000]
    assert found[1].value == pytest.approx(2000 + 2 * armed / 1000)
    assert "2 x 16 KiB reduced" in found[0].case


def test_what_the_program_says_of_clocks_is_of_one_rank_and_allreduce(tmp_path):
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "assert sys.argv[2:] == ['spans', '7']\n"
        "print('gcc 12')\n"
        "print(int(sys.argv[1]) * 4 * 3, 'readings')\n"
    )
    program.chmod(0o755)
    assert instructions.readings_of(program, 7) == 3
    program.write_text(f"#!{sys.executable}\nraise SystemExit('broken')\n")
    with pytest.raises(counting.NotCountedError, match="program failed:\nbroken"):
        instructions.readings_of(program, 7)


def test_where_it_cannot_be_counted_it_says_so(monkeypatch):
    def measure(steps):
        raise counting.NotCountedError("There is no valgrind here.")

    monkeypatch.setattr(instructions, "measure", measure)
    app = typer.Typer()
    app.command()(tracing.main)
    shown = CliRunner().invoke(app, ["--only", "instructions"])
    assert shown.exit_code == 1
    assert "There is no valgrind here." in shown.output


def test_a_recorder_that_is_disarmed_takes_next_to_nothing():
    program = counted_program()
    build, small = instructions.allreduce_of(program, instructions.SMALL)
    disarmed = instructions.judge(build, small, small, STEP)[0]
    assert disarmed.holds, disarmed
    # The call, its sent and its received messages, each with at least two clock
    # readings.
    assert small.readings >= 10
    assert small.counted["armed"] > small.counted["disarmed"]
