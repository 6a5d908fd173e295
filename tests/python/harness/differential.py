# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Runs programs on Gloo and on aikido with the same data, and reports differences.

The report shows the shortest part of the program that still differs. From the folder
tests/python, for programs 17 or 100 to 199:

    python -m harness.differential 17
    python -m harness.differential 100 199
"""

import re
import sys
import tempfile
import time
from collections.abc import Sequence

from aikido_torch.testing import run_ranks
from aikido_torch.testing._ranks import RanksFailedError
from harness.execution import judge, run
from harness.programs import Program, Step, program, shorter, size_of

# Limit for the search for the shortest part of a program that fails.
_SHORTEN_S = 40.0
# Programs in one group of processes. A hang is noticed after the deadline of all of
# them.
_AT_ONCE = 12


def compare(programs: Sequence[Program], deadline: float = 100.0) -> list[str]:
    """Runs programs of one size in the same processes; returns the failures."""
    with tempfile.TemporaryDirectory(prefix="aikido-programs-") as folder:
        try:
            answers = run_ranks(
                programs[0].size,
                _compare_here,
                programs,
                folder,
                backend=None,
                deadline=deadline,
            )
        except RanksFailedError as error:
            return [
                f"rank {rank}: {_last_words(text)}"
                for rank, text in error.failures.items()
            ]
    return [text for answer in answers for text in answer]


def _last_words(failure: str) -> str:
    """Last line of a traceback; the whole text if a rank hung, which is its stack."""
    if not failure.startswith("Traceback"):
        return failure
    return failure.strip().splitlines()[-1]


def _compare_here(
    rank: int, size: int, programs: Sequence[Program], folder: str
) -> list[str]:
    wrong = []
    for each in programs:
        gloo = run(each, rank, "gloo", "gloo", folder)
        ours = [run(each, rank, "aikido", f"aikido {i}", folder) for i in (1, 2)]
        wrong += [f"program {each.number}, {t}" for t in judge(each, rank, gloo, ours)]
    return wrong


def check(numbers: Sequence[int]) -> int:
    """Runs the programs with these numbers; returns the number of their operations.

    Raises:
        AssertionError: a program failed. The text has the failure, the shortest part of
            the program that shows it, and the command that repeats it.
    """
    num_operations = 0
    for size in (2, 3, 4):
        of_size = [n for n in numbers if size_of(n) == size]
        for at in range(0, len(of_size), _AT_ONCE):
            programs = [program(n) for n in of_size[at : at + _AT_ONCE]]
            wrong = compare(programs)
            if wrong:
                raise AssertionError(_report(programs, wrong))
            num_operations += sum(
                isinstance(step, Step) for each in programs for step in each.steps
            )
    return num_operations


def _report(programs: Sequence[Program], wrong: list[str]) -> str:
    text = "\n".join(wrong)
    # The first failure may have caused the others.
    named = [
        (int(n), int(s)) for n, s in re.findall(r"program (\d+), step (\d+)", text)
    ]
    number, step = min(named, default=(programs[0].number, None))
    lines = [text[:6000]]
    if re.search(rf"program {number}, ", text):
        whole = next(p for p in programs if p.number == number)
        shortest, why = _shortest(whole, step)
        lines += ["", "The shortest part found that fails:", str(shortest), why[:3000]]
    lines += ["", f"Again: cd tests/python; python -m harness.differential {number}"]
    return "\n".join(lines)


def _shortest(whole: Program, failing: int | None) -> tuple[Program, str]:
    end = time.monotonic() + _SHORTEN_S
    best, why = whole, "alone, the whole program does not fail again"
    tries = shorter(whole, failing)
    still_fails = None
    while (left := end - time.monotonic()) > 1:
        try:
            part = tries.send(still_fails)
        except StopIteration:
            break
        wrong = compare([part], deadline=min(left, 10.0))
        still_fails = bool(wrong)
        if wrong:
            best, why = part, "\n".join(wrong)
    return best, why


def main(arguments: Sequence[str]) -> None:
    first, last = int(arguments[0]), int(arguments[-1])
    start = time.monotonic()
    num_operations = check(range(first, last + 1))
    seconds = time.monotonic() - start
    print(f"programs {first} to {last}: {num_operations} operations, {seconds:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
