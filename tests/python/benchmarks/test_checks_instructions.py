# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
import pytest

from benchmarks import checks_instructions
from benchmarks.instructions import NotCountedError

FILE = (
    "desc: Trigger: Client Request: {}\n\nevents: Ir\nsummary: 900\n\n"
    "fn=(1) main\n1 5\n\ntotals: {}\n"
)


def test_counts_are_read_by_check_and_rank(tmp_path):
    """The summary misses the threads that have ended."""
    for number, (name, total) in enumerate(
        (("off 0", 1000), ("warn 0", 1002), ("first 0", 7), ("off 1", 1010))
    ):
        file = tmp_path / f"counts.12.{number}"
        file.write_text(FILE.format(name, total))
    (tmp_path / "counts.12").write_text("desc: Trigger: Program termination\n")
    assert checks_instructions.counts_of(tmp_path) == {
        ("off", 0): 1000,
        ("warn", 0): 1002,
        ("off", 1): 1010,
    }


@pytest.mark.parametrize(("added", "holds"), [(4, True), (6, False)])
def test_checks_may_add_half_a_percent(added, holds):
    steps = checks_instructions.STEPS
    counts = {("off", 0): 1000 * steps, ("warn", 0): (1000 + added) * steps}
    (result,) = checks_instructions.judged(counts, "4 layers of 256")
    assert result.case == "healthy step with checks, 4 layers of 256, rank 0"
    assert (result.reference, result.value) == (1000, 1000 + added)
    assert result.holds is holds


def test_without_valgrind_nothing_is_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotCountedError, match="There is no valgrind here"):
        checks_instructions.count(2, 8, 1)
