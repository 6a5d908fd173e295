# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import json
import sys

import pytest

from benchmarks import instructions
from harness.counting import counted_program


def keep(tmp_path, value):
    file = tmp_path / "kept.json"
    case = instructions.judged("gcc 12, x86_64", value, file).case
    file.write_text(json.dumps([{"case": case, "value": value}]))
    return file


@pytest.mark.parametrize(("value", "holds"), [(1090, True), (1110, False), (5, True)])
def test_a_figure_may_grow_by_a_tenth(tmp_path, value, holds):
    file = keep(tmp_path, 1000)
    result = instructions.judged("gcc 12, x86_64", value, file)
    assert result.reference == 1000
    assert result.holds is holds


def test_without_a_figure_of_its_compiler_nothing_is_judged(tmp_path):
    file = keep(tmp_path, 1000)
    assert instructions.judged("clang 14, x86_64", 5000, file).holds is None
    assert instructions.judged("gcc 12, x86_64", 5, tmp_path / "none").holds is None


def test_the_count_is_read_from_the_end_of_callgrind():
    text = "==1== Events    : Ir\n==1== Collected : 40962\n==1== I refs:  40,962\n"
    assert instructions.count_of(text) == 40962
    with pytest.raises(instructions.NotCountedError, match="did not say how many"):
        instructions.count_of("==1== Events    : Ir\n")


def test_what_a_process_costs_is_not_counted(tmp_path, monkeypatch):
    tool = tmp_path / "valgrind"
    tool.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "num = int(sys.argv[-1])\n"
        "print('gcc 12, x86_64')\n"
        "print(f'==1== Collected : {7_000_000 + 400 * num}', file=sys.stderr)\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert instructions.count(tmp_path / "program") == ("gcc 12, x86_64", 100.0)
    tool.write_text(f"#!{sys.executable}\nraise SystemExit('broken')\n")
    with pytest.raises(instructions.NotCountedError, match="program failed:\nbroken"):
        instructions.count(tmp_path / "program")
    tool.unlink()
    with pytest.raises(instructions.NotCountedError, match="There is no valgrind here"):
        instructions.count(tmp_path / "program")


def test_an_allreduce_takes_no_more_instructions_than_are_kept():
    result = instructions.judged(*instructions.count(counted_program()))
    if result.bar is None:
        pytest.skip(f"no figure is kept for this compiler: {result.case}")
    assert result.holds, (
        f"{result.case}: {result.value:.0f} instructions of a rank, and "
        f"{result.reference:.0f} are kept; if that is meant, keep the new figure "
        "(benchmarks/README.md)"
    )
