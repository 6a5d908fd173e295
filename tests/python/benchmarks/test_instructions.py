# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import sys

import pytest

from benchmarks import instructions
from benchmarks.instructions import Counted
from harness.counting import counted_program


def judged(build, value, file):
    """The result for instructions."""
    return instructions.judged(Counted(build, value, 0.0), file)[0]


def keep(tmp_path, value):
    file = tmp_path / "kept.json"
    case = judged("gcc 12, x86_64", value, file).case
    file.write_text(json.dumps([{"case": case, "value": value}]))
    return file


@pytest.mark.parametrize(("value", "holds"), [(1090, True), (1110, False), (5, True)])
def test_a_figure_may_grow_by_a_tenth(tmp_path, value, holds):
    file = keep(tmp_path, 1000)
    result = judged("gcc 12, x86_64", value, file)
    assert result.reference == 1000
    assert result.holds is holds


def test_without_a_figure_of_its_compiler_nothing_is_judged(tmp_path):
    file = keep(tmp_path, 1000)
    assert judged("clang 14, x86_64", 5000, file).holds is None
    assert judged("gcc 12, x86_64", 5, tmp_path / "none").holds is None


@pytest.mark.parametrize(("value", "holds"), [(0.0, True), (0.25, False)])
def test_an_allreduce_asks_nothing_of_the_heap_whatever_built_it(
    tmp_path, value, holds
):
    counted = Counted("clang 14, x86_64", 1000, value)
    result = instructions.judged(counted, tmp_path / "none")[1]
    assert result.case.startswith("allocations of an allreduce of 4 KiB, 4 ranks")
    assert result.holds is holds


def test_the_count_is_read_from_the_end_of_callgrind():
    text = "==1== Events    : Ir\n==1== Collected : 40962\n==1== I refs:  40,962\n"
    assert instructions.count_of(text) == 40962
    with pytest.raises(instructions.NotCountedError, match="did not say how many"):
        instructions.count_of("==1== Events    : Ir\n")


def test_the_allocations_are_read_from_a_line_of_the_program():
    assert instructions.allocations_of("gcc 12, x86_64\n542 allocations\n") == 542
    with pytest.raises(instructions.NotCountedError, match="how many allocations"):
        instructions.allocations_of("gcc 12, x86_64\n")


def test_what_a_process_costs_is_not_counted(tmp_path, monkeypatch):
    tool = tmp_path / "valgrind"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "num = int(sys.argv[-1])\n"
        "print('gcc 12, x86_64')\n"
        "print(f'{500 + 2 * num} allocations')\n"
        "print(f'==1== Collected : {7_000_000 + 400 * num}', file=sys.stderr)\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    counted = instructions.count(tmp_path / "program")
    assert counted == Counted("gcc 12, x86_64", 100.0, 0.5)
    tool.write_text(f"#!{sys.executable}\nraise SystemExit('broken')\n")
    with pytest.raises(instructions.NotCountedError, match="program failed:\nbroken"):
        instructions.count(tmp_path / "program")
    tool.unlink()
    with pytest.raises(instructions.NotCountedError, match="There is no valgrind here"):
        instructions.count(tmp_path / "program")


def test_of_a_message_both_ends_are_counted_and_kept_apart(tmp_path):
    file = keep(tmp_path, 1000)
    counted = Counted("gcc 12, x86_64", 5000, 0.0)
    result, heap = instructions.judged(counted, file, instructions.MESSAGE)
    assert result.case == "message of 8 bytes, both ends, gcc 12, x86_64"
    assert (result.value, result.holds) == (5000, None)
    assert heap.case.startswith("allocations of a message of 8 bytes")


@pytest.mark.parametrize("case", instructions.CASES, ids=lambda case: case.program)
def test_a_call_takes_no_more_than_is_kept(case):
    counted = instructions.count(counted_program(case), ranks=case.ranks)
    result, heap = instructions.judged(counted, of=case)
    assert heap.holds, f"{heap.case}: {heap.value:g}"
    if result.bar is None:
        pytest.skip(f"no figure is kept for this compiler: {result.case}")
    assert result.holds, (
        f"{result.case}: {result.value:.0f} instructions, and "
        f"{result.reference:.0f} are kept; if that is meant, keep the new figure "
        "(benchmarks/README.md)"
    )
