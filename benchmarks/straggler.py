# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) the aikido authors
"""Skip-straggler allreduce on hosts with slow links, late ranks and dead ones.

Every case measures ours, the comparison values and Gloo in turns by the same processes,
and judges by bars fixed beforehand (--list). It needs root, for the hosts of lab/; only
healthy-small does without. A case that fails says so and the next one runs.
"""

import contextlib
import sys
from pathlib import Path

import typer

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks import common
from benchmarks.straggler_cases import command, faults, late, links, training

CASES = [*links.CASES, *late.CASES, *faults.CASES, *training.CASES]


def main(
    cases: command.Names = None,
    json_file: common.JsonPath = None,
    full: command.Full = False,
    seed: command.Seed = 0,
    details: command.Details = None,
    show_list: command.ShowList = False,
) -> None:
    """Measures skip-straggler allreduce against its bars, interleaved with Gloo."""
    command.run(
        "skip-straggler allreduce",
        CASES,
        cases,
        json_file=json_file,
        is_full=full,
        seed=seed,
        details=details,
        show_list=show_list,
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
